"""The formats for the body of a call. Each module reads and writes one."""
