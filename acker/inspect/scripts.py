"""The reading scripts, and scripts that keep views, as functions (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Mapping, Sequence

from acker.ledger.calls.calls import Call
from acker.store import keys, scripts
from acker.store.keys import Shard
from acker.store.operation import Request, script


def find_recent(shard: Shard, slab: bytes, index: int, latest: int, earliest: int) -> Request:
    """Looks for a tree among the latest that failed or expired, by numbers of these."""
    return script("find_recent", [shard.recent], [slab, index, f"{latest}-0", f"{earliest}-0"])


def note_server(key: bytes, owner: bytes, life: int = 0) -> Request:
    """Notes since when a key has been with its server, if its owner is there. life: of the key, in ms."""
    return script("note_server", [key, owner], [life])


def pause_spout(shard: Shard, spout: str, record: str) -> Call:
    """Pauses a spout in a shard; ends its pause there with an empty record."""
    return Call(shard.number, scripts.get("pause_spout"), [], [spout, record], waits=True)


def pause_kept(
    spout: keys.Spout, present: bytes, value: str, ttl: int, seen: tuple[bytes, int], wait: tuple[int, int]
) -> Request:
    """Pauses a spout for its kept rows, or ends that. seen: its removals, and until when the call counts."""
    return script("pause_kept", [spout.paused, spout.removals], [present, value, ttl, *seen], wait)


def remove_spout_number(shard: Shard, spout: str) -> Call:
    """Frees a spout's number where it owes nothing."""
    return Call(shard.number, scripts.get("remove_spout_number"), [shard.outcomes(spout)], [spout])


def record_history(topology: str, writer: str, reading: bytes, kept: Mapping[int, int]) -> Request:
    """Writes a reading of the counters. kept: how many of each step (seconds) are kept."""
    streams = [keys.history(topology, step) for step in kept]
    steps = [word for step, most in kept.items() for word in (step * 1000, most)]
    own = [keys.turn(topology), keys.config(topology), *streams]
    return script("record_history", own, [writer, reading, *steps])


def note_health(
    topology: str, changed: Mapping[str, str], noted: Mapping[str, str], gone: Sequence[str]
) -> Request:
    """Sets fields, and those noted where they are new; drops some."""
    fields = [word for field in (*changed.items(), *noted.items()) for word in field]
    own = [keys.config(topology), keys.health(topology)]
    return script("note_health", own, [len(changed), len(noted), *fields, *gone])


def note_activity(
    topology: str, most: int, most_marks: int, *, mark: bool, call: str, run: str, count: int, write: str,
    key: Sequence[bytes] = (),
) -> Request:  # fmt: skip
    """Notes a write in the activity of a topology; pieces of one run are one entry.

    most_marks: marks that are kept beside the activity, once other writes have pushed them out of it.
    key: the record of an idempotency key, if there is one: under it one entry is noted.
    """
    own = [keys.config(topology), keys.activity(topology), keys.activity(topology, "chart_marks"), *key]
    return script("note_activity", own, [most, most_marks, int(mark), call, run, count, write])
