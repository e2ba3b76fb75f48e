"""The files that the coding tools work on, and the commands that run there."""
