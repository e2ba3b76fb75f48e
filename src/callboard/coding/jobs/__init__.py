"""Jobs on disk: the store, the log of steps, and the conversation that a log holds."""
