"""What became of each recurrent node."""
