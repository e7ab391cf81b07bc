"""Programs that try acker with real processes, for as long as one likes: harness/README.md."""
