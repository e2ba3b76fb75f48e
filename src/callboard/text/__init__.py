"""Text that arrives in pieces (SSE, JSON, markers), and text that is shown, shortened or compared."""
