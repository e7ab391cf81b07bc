"""Calls in doubt: their caller got an error, and does not know if they were begun.

The sent requests may still reach the store. So the calls are first taken from their caller: their later rows
are not written. Then the written calls are known, and the others are forgotten, so that they can begin anew.
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
    """Calls that a caller begins together. writer: the writer of their commit."""

    caller: str
    requests: Sequence[str]
    writer: str = field(default_factory=lambda: secrets.token_hex(16))


def clear(core: Core, function: Description, doubt: Doubt) -> Operation[None]:
    """Finishes the commit of calls if it was begun, and forgets the calls if not."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    [taken] = yield [
        scripts.withdraw_calls(core.config, keys_of_function, doubt.caller, False, doubt.requests)
    ]
    if not taken:
        return
    try:
        if (yield from commits.finish(core, doubt.writer, 0)):
            return
    except (SpoutPendingFull, TrackRejected):
        pass  # there was no room for them
    # The caller may have forgotten its completed commit. Written calls without an answer are kept.
    kept = {name for names in (yield from in_flight(core, function)).values() for name in names}
    left = [request.decode() for request in taken if request.decode() not in kept]
    if left:
        yield [scripts.withdraw_calls(core.config, keys_of_function, doubt.caller, True, left)]


def clear_all(ledger: Ledger, function: Description, doubts: dict[str, Doubt]) -> None:
    """Resolves calls in doubt. doubts: by the writers of their commits.

    Raises StoreUnavailable and StoreError if the store does not allow it, as without free memory: a caller
    that repeated a call would wait for a call that never began. Several threads may resolve the same calls;
    an interrupted thread leaves them to others.
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
