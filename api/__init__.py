"""The service: REST, live events, metrics, the ticker, and the built dashboard."""
