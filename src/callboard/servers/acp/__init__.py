"""The chat of the coding agent for editors: the Agent Client Protocol. Its package (extra `acp`) comes with each module."""
