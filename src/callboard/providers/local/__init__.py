"""The files of local models: which can be had, how they come, where they stand."""
