"""Calls to a ledger: encoded, sent, and applied once."""
