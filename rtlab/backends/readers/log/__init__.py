"""The builder's verbose log: what a build tried, decided, timed and made."""
