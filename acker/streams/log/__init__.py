"""Segments between jobs: their format, schemas, subscriptions and readers."""
