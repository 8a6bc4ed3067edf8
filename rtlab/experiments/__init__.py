"""Searches that build and run to find an answer: tuning, tactics, sweeps, rankings, trials of what is installed."""
