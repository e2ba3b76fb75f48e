"""`callboard doctor`: what clients would find behind a gateway, and how to fix faults."""
