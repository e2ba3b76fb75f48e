"""What every wire needs: tool names, strict tools, grouped turns, the end of a stream."""
