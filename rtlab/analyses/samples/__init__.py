"""How the times of single runs spread."""
