"""One result type and one function per file: what the measured and reported facts mean together."""
