"""`callboard doctor`: what clients would find behind a gateway, and what would cure it."""
