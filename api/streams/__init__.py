"""Endless answers: live events, and the outcomes of a spout."""
