"""What tasks and drivers need to run acker: pickling, versions, session settings."""
