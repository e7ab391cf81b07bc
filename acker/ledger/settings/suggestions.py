"""Near misses of names: what was probably meant, and what there is."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 20
"""How many names a message lists."""


def meant(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'subscription'?)`, or "" where no name is near.

    The name itself is no near one, also where it is known: it may have come, or gone, right now.
    """
    near = get_close_matches(name[:64].lower(), sorted(set(known) - {name})[:1_000], n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def listed(names: Iterable[str], what: str) -> str:
    """`It has the streams a, b and 3 more`, for at most 20 of them; what: "stream"."""
    found = sorted(names)
    if not found:
        return f"It has no {what}"
    more = f" and {len(found) - MOST:,} more" if len(found) > MOST else ""
    return f"It has the {what}{'s' if len(found) > 1 else ''} {', '.join(found[:MOST])}{more}"
