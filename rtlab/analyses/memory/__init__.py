"""Where the activations of an engine could lie: an estimate from their lifetimes."""
