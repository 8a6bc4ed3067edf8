"""When each layer runs on which stream, and what it waits for."""
