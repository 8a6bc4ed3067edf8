"""One user's models, data, variants and results: the state, what changes it, and how work is run."""
