"""External streams for programs on an event loop."""
