"""Characters that arrive in pieces: SSE frames, JSON objects and strings, fences."""
