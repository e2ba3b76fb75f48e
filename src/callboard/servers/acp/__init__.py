"""The coding agent's chat for editors, over the Agent Client Protocol. Its modules need the extra `acp`."""
