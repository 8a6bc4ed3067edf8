"""The layers of an engine as one table."""
