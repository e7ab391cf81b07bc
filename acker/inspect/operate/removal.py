"""Removing a topology with all that it holds, as an operation: key by key, in bounded steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from acker.errors import NotInstalled, SpoutInUse, TopologyInUse, UnknownSpout
from acker.inspect import scripts
from acker.inspect.topology import history
from acker.inspect.topology.totals import totals
from acker.ledger import ids
from acker.ledger.calls import core as operations
from acker.ledger.calls.core import Core
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name
from acker.ledger.slabs import registries
from acker.ledger.tick import tick
from acker.store import function_keys, keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.store.replies import pairs

_PAGE = 500


def remove(name: str, *, force: bool = False) -> Operation[int]:
    """Removes a topology: its configuration, trees, outcomes, streams, kept rows, dead letters and history.

    Returns how many trees were in flight, or had an outcome that was not confirmed: with any of them it is
    refused unless `force`. Cut short it can be run again. Its jobs should have ended: who still works on it
    stores it again, as in a store that lost everything. Keys with a time to live whose names nobody knows any
    more (staged data, records of commits, effects) go when that is over: after 30 days at the latest.

    Raises UnknownTopology, TopologyInUse (nothing has changed then), and UnreadableRecord.
    """
    core = yield from operations.open_topology(name, {}, create=False)
    read = yield from totals(core)
    if (read.held > 0 or read.waiting > 0) and not force:
        raise TopologyInUse(
            f"topology {name!r} has {max(0, read.pending):,} trees in flight, "
            f"{max(0, read.held - read.pending):,} with an outcome that is not confirmed, and "
            f"{read.waiting:,} slabs that wait for their track"
        )
    # First of all: tickers and services look after topologies that are listed.
    yield [command("SREM", keys.TOPOLOGIES, name)]
    yield from _remove_functions(core)
    yield from _remove_streams(core)
    for spout in core.spouts:
        yield from _remove_kept(core, spout)
    for _ in range(2):  # again for what a tick or a reading that was under way has begun anew
        for shard in core.shards:
            yield from _remove_shard(core, shard)
        # The configuration comes last: with it the rest is found again.
        yield [command("UNLINK", *_own(name))]
        yield [command("UNLINK", keys.config(name))]
    return max(0, read.held)


def remove_spout(core: Core, spout: str) -> Operation[None]:
    """Removes a spout that owes nothing, so that its topology has room for another: it has 64 at most.

    Whoever runs it should have stopped: who still emits under its name makes it anew. Raises UnknownSpout
    where there is none of that name, and SpoutInUse while it has trees in flight, outcomes that are not
    confirmed, kept rows or dead letters.
    """
    check_name(spout, "spout")
    name = f"spout {spout!r} of topology {core.config.name!r}"
    known = yield from topologies.spouts(core.config.name)
    if spout not in (known or ()):
        raise UnknownSpout(f"there is no {name}")
    own = keys.Spout(core.config.name, spout)
    kept, letters = yield [command("HLEN", own.kept), command("XLEN", own.dead)]
    if kept or letters:
        raise SpoutInUse(
            f"{name} has {letters:,} dead letters, and rows that are not settled: settle and delete them"
        )
    calls = [scripts.free_spout(one, spout) for one in core.shards]
    owed = sum((yield from core.ask(calls)))
    if owed:
        raise SpoutInUse(
            f"{name} has {owed:,} trees in flight, or with an outcome that is not confirmed: let a spout of "
            "that name take and confirm them first"
        )
    yield from topologies.forget_spout(core.config, spout)
    yield from _remove_kept(core, spout)
    core.spouts -= {spout}


def _own(name: str) -> list[bytes]:
    """The keys beside shards, streams and spouts."""
    readings = [keys.history(name, step) for step in history.STEPS.values()]
    return [
        *readings,
        keys.turn(name),
        keys.streams(name),
        keys.lines(name),
        keys.steps(name),
        keys.step_numbers(name),
        keys.health(name),
        keys.committing(name),
    ]


@contextmanager
def _with_pyarrow(core: Core, what: str) -> Iterator[None]:
    """Raises NotInstalled in place of an ImportError."""
    try:
        yield
    except ImportError as error:
        raise NotInstalled(
            f"topology {core.config.name!r} has {what}: to remove them takes pyarrow"
        ) from error


def _remove_functions(core: Core) -> Operation[None]:
    """Removes the functions of a topology (acker/drpc/registry.py); one that cannot be read stays."""
    [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    topology = f'"{core.config.name}"'.encode()
    found = {name: record for name, record in pairs(stored).items() if topology in record}
    if not found:
        return
    with _with_pyarrow(core, "functions"):
        from acker.drpc.registry import Description
    for name, record in found.items():
        with passing_over(f"function {name!r:.100}"):
            if Description.load(record).topology == core.config.name:
                yield [command("HDEL", keys.FUNCTIONS, name)]


def _remove_streams(core: Core) -> Operation[None]:
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    if not names:
        return
    with _with_pyarrow(core, "streams"):
        from acker.streams.upkeep.removal import remove_stream
    for name in names:
        yield from remove_stream(core, name.decode("utf-8", "replace"))


def _remove_kept(core: Core, spout: str) -> Operation[None]:
    """Removes the rows that a spout keeps, and its dead letters."""
    own = keys.Spout(core.config.name, spout)
    yield from _each(own.kept, lambda token: own.rows(token.decode("utf-8", "replace")))
    called = function_keys.Function(core.config.name, spout)
    left = [called.calls, called.deadlines, called.answers, called.counted]
    yield [command("UNLINK", *own.declared(), own.highest, own.dead, own.letters, *left)]


def _remove_shard(core: Core, shard: keys.Shard) -> Operation[None]:
    yield from _each(shard.slabs, lambda slab: None if ids.is_one(slab) else shard.vector(slab))
    [(rotations, drained)] = yield from tick.clocks(core, [shard])
    # One more than there are: a rotation may have been made meanwhile.
    aside = [shard.expired(rotation) for rotation in range(drained, rotations + 1)]
    for first in range(0, len(aside), _PAGE):
        yield [command("UNLINK", *aside[first : first + _PAGE])]
    [registry] = yield [command("HGET", shard.clock, "spouts")]
    names = {*core.spouts, *(name for _, name in registries.spouts(registry or b""))}
    yield [command("UNLINK", *shard.declared(names), *shard.of_steps(), shard.traces)]


def _each(table: bytes, key_of: Callable[[bytes], bytes | None]) -> Operation[None]:
    """Empties a hash, and removes before each field the key that it leads to, if any."""
    [count] = yield [command("HLEN", table)]
    for _ in range(-(-int(count) // _PAGE)):  # no further, should somebody still write to it
        [found] = yield [command("HRANDFIELD", table, _PAGE)]
        if not found:
            return
        # One by one: the slot may be on its way to another node, which has some of them already.
        yield [command("UNLINK", key) for field in found if (key := key_of(field)) is not None]
        yield [command("HDEL", table, *found)]
