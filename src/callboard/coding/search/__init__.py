"""Which lines of which files match a pattern.

Two ways to the same: ripgrep where it is, else Python's own expressions in a process that can be ended. Either only
says where; what is shown of a file is read beneath the workspace's root.
"""
