"""Nouns and services. Nothing here imports a vendor package."""

from rtlab.core import later

later.install()
