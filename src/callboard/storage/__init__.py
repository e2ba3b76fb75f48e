"""Our own files: private, atomic, confined to a directory; and their paths."""
