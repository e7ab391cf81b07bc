"""Programs that try acker with real processes, for as long as one likes: docs/chaos.md."""
