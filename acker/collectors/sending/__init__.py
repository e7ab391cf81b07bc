"""The thread of an outbox: its alarm, and what it reports by itself."""
