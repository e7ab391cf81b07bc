"""Suggestions for misspelt names: similar names, and lists of names."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 20
"""Most names that a message lists."""


def meant(name: str, names: Iterable[str]) -> str:
    """` (did you mean 'subscription'?)`, or "" where no name is near.

    The name itself is no suggestion, even if it exists: it may have come or gone right now.
    """
    near = get_close_matches(name[:64].lower(), sorted(set(names) - {name})[:1_000], n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def listed(names: Iterable[str], kind: str) -> str:
    """`It has the streams a, b and 3 more`, for at most 20 names; what: "stream"."""
    listing = sorted(names)
    if not listing:
        return f"It has no {kind}"
    more = f" and {len(listing) - MOST:,} more" if len(listing) > MOST else ""
    return f"It has the {kind}{'s' if len(listing) > 1 else ''} {', '.join(listing[:MOST])}{more}"
