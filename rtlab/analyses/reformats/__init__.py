"""Layers that only change a type or a memory layout."""
