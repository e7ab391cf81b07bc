"""What a batch stages, and how that takes effect: emitted tuples, acks, effects, results."""
