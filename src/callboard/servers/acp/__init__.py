"""The chat of the coding agent for editors, by the Agent Client Protocol. Its modules need the extra `acp`."""
