"""Settings of the service, and its tokens."""
