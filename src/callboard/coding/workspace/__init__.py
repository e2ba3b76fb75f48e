"""The files that tools work on, and the commands that run there."""
