"""Outcomes that no program takes: they are confirmed, so that they take no room from others."""

from collections.abc import Callable

from acker.ledger.calls.core import Core
from acker.ledger.outcomes.outcomes import OutcomeReader, confirm
from acker.store.operation import Operation

_MOST_READINGS = 1_000


def confirm_unread(
    core: Core, spout: str, is_unread: Callable[[], Operation[bool]] | None = None
) -> Operation[int]:
    """Confirms the outcomes of a spout that no program takes; returns the number of trees.

    is_unread: is asked between each reading and its confirmation; a False ends it. So outcomes of a program
    that takes the name meanwhile are not confirmed.
    """
    reader, trees = OutcomeReader(core, spout), 0
    for _ in range(_MOST_READINGS):
        confirmations = [entry.confirmation for entry in (yield from reader.read())]
        if not confirmations:
            break
        if is_unread is not None and not (yield from is_unread()):
            break
        trees += yield from confirm(core, spout, confirmations)
        reader.confirmed(confirmations)
    return trees
