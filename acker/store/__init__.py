"""The server: reaching it, its keys, its scripts."""
