"""Layers around the routes: access, limits, the log, and the dashboard."""
