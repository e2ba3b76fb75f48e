"""Shared parts of the wires: tool names, strict tools, grouped turns, the end of a stream."""
