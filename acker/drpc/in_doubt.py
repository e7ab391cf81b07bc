"""Calls of which their caller does not know whether they were begun, for it got an error.

What was sent may yet reach the store. So the calls are taken from their caller first: rows of theirs that
come later are not written. Then it is known which were, and the others are forgotten, so that they can begin
anew.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from acker.drpc import scripts
from acker.drpc.calls import in_flight
from acker.drpc.registry import Description
from acker.errors import (
    AckerError,
    SpoutPendingFull,
    StoreError,
    StoreUnavailable,
    TrackRejected,
    UnreadableRecord,
    WritersFull,
)
from acker.ledger.calls.core import Core
from acker.ledger.client import Ledger
from acker.store import function_keys
from acker.store.operation import Operation
from acker.streams.commits import commit as commits


@dataclass(frozen=True, slots=True)
class Doubt:
    """Calls that a caller begins together. writer: of the commit that writes them."""

    caller: str
    requests: Sequence[str]
    writer: str = field(default_factory=lambda: secrets.token_hex(16))


def clear(core: Core, what: Description, doubt: Doubt) -> Operation[None]:
    """Finishes the writing of calls where it was begun, and forgets them where it was not."""
    own = function_keys.Function(core.config.name, what.name)
    [taken] = yield [scripts.withdraw_calls(core.config, own, doubt.caller, False, doubt.requests)]
    if not taken:
        return
    try:
        if (yield from commits.finish(core, doubt.writer, 0)):
            return
    except (SpoutPendingFull, TrackRejected):
        pass  # there was no room for them
    # The caller may have forgotten its commit when it was done. What is written and has no answer is kept.
    kept = {name for names in (yield from in_flight(core, what)).values() for name in names}
    left = [request.decode() for request in taken if request.decode() not in kept]
    if left:
        yield [scripts.withdraw_calls(core.config, own, doubt.caller, True, left)]


def clear_all(ledger: Ledger, function: Description, doubts: dict[str, Doubt]) -> None:
    """Finds out what became of calls that were not begun as they should. doubts: by their writers.

    Raises StoreUnavailable and StoreError where the store does not let it, as one without memory. Who
    asked again would wait for calls that nobody has begun. Several threads may clear the same: one that is
    interrupted leaves it to others.
    """
    for doubt in list(doubts.values()):
        try:
            ledger.run(clear(ledger.core, function, doubt))
        except AckerError as error:
            lasting = isinstance(error, UnreadableRecord | WritersFull)
            if isinstance(error, StoreUnavailable) or (isinstance(error, StoreError) and not lasting):
                raise
        else:
            doubts.pop(doubt.writer, None)
