"""All variants of a study side by side, and those that differ from one in a single choice."""
