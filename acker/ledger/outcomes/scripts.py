"""The scripts of outcomes as functions (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Sequence

from acker.ledger.calls.calls import Call
from acker.ledger.settings.config import TopologyConfig
from acker.store import scripts
from acker.store.keys import Shard
from acker.store.keys import Spout as KeptKeys
from acker.store.operation import Request, Word, script


def confirm(shard: Shard, spout: str, entries: Sequence[tuple[bytes, bytes]]) -> Call:
    """Confirms outcomes: id and digest of each entry."""
    args: list[Word] = [spout, *(word for entry in entries for word in entry)]
    return Call(shard.number, scripts.get("confirm"), [shard.outcomes(spout)], args)


def claim_member(
    config: TopologyConfig,
    spout: str,
    token: str,
    wanted: int,
    most: int,
    ttl: float,
    silent: float,
    kept: int,
    run: int,
) -> Request:
    """Takes or keeps the place of a process among the members of a spout; times are in seconds, run in ms."""
    args: list[Word] = [token, wanted, most, round(ttl * 1000), round(silent * 1000), kept, run]
    return script("claim_member", [KeptKeys(config.name, spout).members], args, config.wait)
