"""Steps at work on a topology: registered, numbered and counted."""
