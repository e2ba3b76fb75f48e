"""Small real tasks for coding agents: fixture repositories, what is to be done in them, and whether it was."""
