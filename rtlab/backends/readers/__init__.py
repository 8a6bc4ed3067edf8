"""Engines out of files that were written elsewhere."""
