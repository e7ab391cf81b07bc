"""Looks of these tests end by what they find, not by their time."""

import pytest

from acker.inspect.locate import completion, expiry_reasons


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that takes two seconds on a slow machine ends without a reason; a test of that sets its own."""
    monkeypatch.setattr(expiry_reasons, "SECONDS", 60.0)
    monkeypatch.setattr(completion, "_SECONDS", 60.0)
