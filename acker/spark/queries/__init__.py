"""What acker knows of streaming queries: their batches, their plans, and who else is at work."""
