"""Search the lines of files for a pattern.

ripgrep and Python only find line numbers; the lines themselves are read beneath the workspace's root.
"""
