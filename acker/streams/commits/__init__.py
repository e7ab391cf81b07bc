"""What a batch stages and commits."""
