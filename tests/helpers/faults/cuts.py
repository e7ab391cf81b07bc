"""Commits whose exchanges are small, so that a test may come between any two of their steps."""

import pytest

from acker.streams.commits import chunks, run


def script_by_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the scripts of commits go one in an exchange."""
    monkeypatch.setattr(chunks, "MOST", 0)
    monkeypatch.setattr(chunks, "MOST_CHUNKS", 1)


def chain_by_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, where a commit that has all at hand stages one record with it."""
    monkeypatch.setattr(chunks, "MOST", 1)
    monkeypatch.setattr(chunks, "MOST_CHUNKS", 1)


def as_in_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each step of a commit a flight of its own, on any store."""
    monkeypatch.setattr(run.Run, "one_server", False)
