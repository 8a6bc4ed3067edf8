"""Pure projection of results to payloads that a browser can draw."""
