"""Views of lines: their gathers, their requests, and their unread streams."""
