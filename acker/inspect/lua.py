"""The scripts that look, or keep what people look at, as functions (as in acker/ledger/lua.py)."""

from collections.abc import Mapping, Sequence

from acker.ledger.submissions import Call
from acker.store import keys, scripts
from acker.store.keys import Shard
from acker.store.operation import Request, Word, script


def _read(name: str, shard: Shard, own: Sequence[bytes], args: Sequence[Word]) -> Request:
    """A read of a shard: the keys of lua/includes/read.lua come first."""
    return script(name, [*shard.declared(())[:4], shard.ones, shard.early, *own], args)


def read_tree(shard: Shard, slab: bytes, index: int) -> Request:
    """Reads a tree."""
    return _read("read_tree", shard, [shard.vector(slab)], [index])


def read_trees(shard: Shard, slabs: Sequence[bytes], most: int, first: int) -> Request:
    """Reads trees of slabs, from an index of the first slab on."""
    return _read("read_trees", shard, shard.vectors(slabs), [most, first])


def scan_slabs(
    shard: Shard, first: int, cursor: int, count: int, ages: tuple[int, int], aside: Sequence[int]
) -> Request:
    """Names slabs of generations. ages: the youngest and oldest wanted. aside: rotations, in their order."""
    own = [*shard.buckets(), *(shard.expired(rotation) for rotation in aside)]
    return _read("scan_slabs", shard, own, [first, cursor, count, *ages])


def read_totals(shard: Shard, sample: int, counters: Sequence[str], aside: Sequence[int]) -> Request:
    """Reads how full a shard is. aside: rotations whose sets are not drained, the oldest first."""
    own = [shard.counters, *shard.buckets(), *(shard.expired(rotation) for rotation in aside)]
    return _read("read_totals", shard, own, [sample, *counters])


def find_recent(shard: Shard, slab: bytes, index: int, latest: int, earliest: int) -> Request:
    """Looks for a tree among the latest that failed or expired, by numbers of these."""
    return script("find_recent", [shard.recent], [slab, index, f"{latest}-0", f"{earliest}-0"])


def free_spout(shard: Shard, spout: str) -> Call:
    """Frees a spout's number where it owes nothing."""
    return Call(shard.number, scripts.get("free_spout"), [shard.outcomes(spout)], [spout])


def record_history(topology: str, token: str, reading: bytes, kept: Mapping[int, int]) -> Request:
    """Writes a reading of the counters. kept: how many of each step (seconds) are kept."""
    streams = [keys.history(topology, step) for step in kept]
    steps = [word for step, most in kept.items() for word in (step * 1000, most)]
    own = [keys.turn(topology), keys.config(topology), *streams]
    return script("record_history", own, [token, reading, *steps])


def register_step(topology: str, field: bytes, what: str, most: int) -> Request:
    """Notes who works on a topology."""
    return script("register_step", [keys.steps(topology)], [field, what, most])


def number_step(topology: str, name: str, number: int, most: int) -> Request:
    """Gives a step its number."""
    return script("number_step", [keys.step_numbers(topology)], [name, number, most])


def note_health(
    topology: str, changed: Mapping[str, str], noted: Mapping[str, str], gone: Sequence[str]
) -> Request:
    """Sets fields, and those noted where they are new; drops some."""
    fields = [word for field in (*changed.items(), *noted.items()) for word in field]
    own = [keys.config(topology), keys.health(topology)]
    return script("note_health", own, [len(changed), len(noted), *fields, *gone])
