"""Nouns and services. Nothing here imports a vendor package."""
