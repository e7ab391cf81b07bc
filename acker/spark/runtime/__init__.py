"""Support for tasks and drivers that run acker: pickling, versions, session settings."""
