"""Times at several batch sizes."""
