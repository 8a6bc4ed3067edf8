"""What every question stands on: which node became which layer, what flows where, work and bytes."""
