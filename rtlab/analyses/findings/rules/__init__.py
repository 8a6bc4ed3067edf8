"""What may be wrong with an engine: one function per rule, from a reading of the engine to findings."""
