"""The script of outcomes as a function (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Sequence

from acker.ledger.calls.calls import Call
from acker.store import scripts
from acker.store.keys import Shard
from acker.store.operation import Word


def confirm(shard: Shard, spout: str, entries: Sequence[tuple[bytes, bytes]]) -> Call:
    """Confirms outcomes: id and digest of each entry."""
    args: list[Word] = [spout, *(word for entry in entries for word in entry)]
    return Call(shard.number, scripts.get("confirm"), [shard.outcomes(spout)], args)
