"""Files of ours: private, atomic, confined to a directory, and where they stand."""
