"""External streams in plain Python: what was received and sent waits for a flush, which is one commit."""
