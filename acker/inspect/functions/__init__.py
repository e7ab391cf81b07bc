"""Calls of functions: how many ended how, and how far one is."""
