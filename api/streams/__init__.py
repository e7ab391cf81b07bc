"""What a client follows while its connection lasts: live events, and outcomes of a spout."""
