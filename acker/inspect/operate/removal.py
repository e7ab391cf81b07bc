"""Removing a topology with all that it holds, as an operation: key by key, in bounded steps.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from acker.errors import NotInstalled, SpoutInUse, TopologyInUse, UnknownSpout
from acker.inspect import scripts
from acker.inspect.operate import pauses
from acker.inspect.topology import history
from acker.inspect.topology.totals import totals
from acker.ledger import ids
from acker.ledger.calls import core as operations
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import members
from acker.ledger.settings import topologies
from acker.ledger.settings.config import check_name, spout_of
from acker.ledger.slabs import registries
from acker.ledger.tick import tick
from acker.store import function_keys, keys
from acker.store.operation import Operation, command
from acker.store.records import passing_over
from acker.store.replies import pairs

_PAGE = 500


def remove(name: str, *, force: bool = False) -> Operation[int]:
    """Removes a topology: its configuration, trees, outcomes, streams, kept rows, dead letters and history.

    Returns the number of trees that were in flight, or had an unconfirmed outcome; with any of them, removal
    is refused unless `force` is set. If interrupted, it can be run again. Its jobs should have ended: a
    running job ends with UnknownTopology, or stores the topology again. Keys with a time to live and
    unknown names (staged data, records of commits, effects) expire by themselves, after 30 days at the
    latest. Raises UnknownTopology, TopologyInUse (nothing has changed then), and UnreadableRecord.
    """
    epoch = yield from topologies.epoch(name)  # first: another one of its name stays
    core = yield from operations.open_topology(name, {}, create=False)
    read = yield from totals(core)
    if (read.outstanding > 0 or read.waiting > 0) and not force:
        raise TopologyInUse(
            f"topology {name!r} has {max(0, read.pending):,} trees in flight, "
            f"{max(0, read.outstanding - read.pending):,} with an outcome that is not confirmed, and "
            f"{read.waiting:,} slabs with messages for trees that are not tracked yet"
        )
    # First of all: tickers and services look after topologies that are listed.
    yield from topologies.unlist(name, epoch)
    yield from _remove_functions(core)
    yield from _remove_streams(core, epoch)
    for spout in core.spouts:
        if (yield from _is_there(core, epoch)):
            yield from _remove_kept(core, spout, lambda: _is_there(core, epoch))
    seen = yield from topologies.read_marks([shard.removed for shard in core.shards])
    if (yield from _is_there(core, epoch)):
        if not (yield from topologies.mark_removed(core.shards, seen)):
            raise _made_anew(core)
        for shard in core.shards:  # from here on no call makes a key
            yield from _remove_shard(core, shard)
    # The configuration comes last: with it the rest is found again, and without it what a late copy of a call
    # makes has a time to live. From here on a job may make the topology anew, so nothing more is removed.
    yield from topologies.unlist(name, epoch)  # a process may have opened it, and listed it, meanwhile
    yield [topologies.forget(name, epoch, _own(name))]
    return max(0, read.outstanding)


def remove_spout(core: Core, spout: str) -> Operation[None]:
    """Removes a spout without pending work, so that its topology has room for another: it has 64 at most.

    Its program should have stopped: a program that still emits under its name recreates it. Outcomes of a
    KafkaSpout that none of its processes is left for are confirmed. Raises UnknownSpout if there is no such
    spout, and SpoutInUse while it has trees in flight, unconfirmed outcomes, kept rows or dead letters.
    """
    check_name(spout, "spout")
    name = f"spout {spout!r} of topology {core.config.name!r}"
    known = yield from topologies.spouts(core.config.name)
    if spout not in (known or ()):
        raise UnknownSpout(f"there is no {name}")
    spout_keys = keys.Spout(core.config.name, spout)
    kept, letters = yield [command("HLEN", spout_keys.kept), command("XLEN", spout_keys.dead)]
    if kept or letters:
        raise SpoutInUse(
            f"{name} has {letters:,} dead letters, and rows that are not settled: settle and delete them"
        )
    # Its members have a name each in the shards, also long after the last of them has ended.
    registered = yield [command("HGET", shard.clock, "spouts") for shard in core.shards]
    listed = {one for registry in registered for one in registries.names(registry or b"").values()}
    names = sorted({spout, *(one for one in listed if spout_of(one) == spout)})
    yield from members.confirm_gone(core, spout, names)
    calls = [scripts.remove_spout_number(shard, name) for name in names for shard in core.shards]
    count = sum((yield from core.ask(calls)))
    if count:
        raise SpoutInUse(
            f"{name} has {count:,} trees in flight, or with an outcome that is not confirmed: let a spout "
            "of that name take and confirm them first"
        )
    # A spout of that name that comes later is not paused, also if somebody pauses this one meanwhile.
    yield from pauses.end_in_shards(core, spout)
    yield from topologies.remove_spout(core.config, spout)
    yield from pauses.end_in_shards(core, spout)
    waits = [f"{kind}:{spout}" for kind in ("unread", "unsent", "sent")]  # note_wait.lua
    yield [command("HDEL", keys.health(core.config.name), *waits)]
    yield from _remove_kept(core, spout, lambda: _has_no_spout(core, spout))
    yield from _remove_reached(core, spout)
    core.spouts -= {spout}


def _is_there(core: Core, epoch: str) -> Operation[bool]:
    """Return True if a topology is still there; False if another process has removed it meanwhile.

    Raises TopologyInUse if it was made anew since.
    """
    [stored] = yield [command("HGET", keys.config(core.config.name), "epoch")]
    if stored is not None and stored != epoch.encode():
        raise _made_anew(core)
    return stored is not None


def _made_anew(core: Core) -> TopologyInUse:
    return TopologyInUse(
        f"topology {core.config.name!r} was opened again while it was removed, and lacks what was removed "
        "until then: stop its jobs, and remove it once more"
    )


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
        keys.steps(name, "held"),
        keys.health(name),
        keys.activity(name),
        keys.activity(name, "chart_marks"),
        keys.committing(name),
        keys.reached(name),
    ]


@contextmanager
def _with_pyarrow(core: Core, remains: str) -> Iterator[None]:
    """Raises NotInstalled in place of an ImportError."""
    try:
        yield
    except ImportError as error:
        raise NotInstalled(
            f"topology {core.config.name!r} has {remains}: to remove them takes pyarrow"
        ) from error


def _remove_functions(core: Core) -> Operation[None]:
    """Removes the functions of a topology (acker/drpc/registry.py); one that cannot be read stays."""
    [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    topology = f'"{core.config.name}"'.encode()
    records = {name: record for name, record in pairs(stored).items() if topology in record}
    if not records:
        return
    with _with_pyarrow(core, "functions"):
        from acker.drpc import registry
    for name, record in records.items():
        with passing_over(f"function {name!r:.100}"):
            function = registry.Description.load(record)
            if function.topology == core.config.name:
                yield from registry.unlist(function)


def _remove_streams(core: Core, epoch: str) -> Operation[None]:
    [names] = yield [command("SMEMBERS", keys.streams(core.config.name))]
    if not names:
        return
    with _with_pyarrow(core, "streams"):
        from acker.streams.upkeep.removal import remove_stream
    for name in names:
        if (yield from _is_there(core, epoch)):
            yield from remove_stream(core, name.decode("utf-8", "replace"))


def _has_no_spout(core: Core, spout: str) -> Operation[bool]:
    known = yield from topologies.spouts(core.config.name)
    return spout not in (known or ())


def _remove_kept(core: Core, spout: str, is_same: Callable[[], Operation[bool]]) -> Operation[None]:
    """Removes the rows that a spout keeps, and its dead letters, unless they are of another one by now."""
    spout_keys = keys.Spout(core.config.name, spout)
    yield from _each(spout_keys.kept, lambda roots_id: spout_keys.rows(roots_id.decode("utf-8", "replace")))
    called = function_keys.Function(core.config.name, spout)
    gone = [
        *spout_keys.declared(), spout_keys.highest, spout_keys.dead, spout_keys.letters, spout_keys.members,
        spout_keys.server, spout_keys.paused, called.calls, called.deadlines, called.answers, called.counted,
    ]  # fmt: skip
    yield from topologies.forget_keys(spout_keys.removals, gone, is_same)


def _remove_reached(core: Core, spout: str) -> Operation[None]:
    """Removes what a spout has noted last of partitions, without a process that goes on with them."""
    key = keys.reached(core.config.name)
    [stored] = yield [command("HGETALL", key)]
    own = [name for name, text in pairs(stored).items() if text.startswith(f"{spout} ".encode())]
    if own:
        yield [command("HDEL", key, *own)]


def _remove_shard(core: Core, shard: keys.Shard) -> Operation[None]:
    yield from _remove_slabs(core, shard)
    [(rotations, drained)] = yield from tick.clocks(core, [shard])
    # One more than there are: a rotation may have been made meanwhile.
    aside = [shard.expired(rotation) for rotation in range(drained, rotations + 1)]
    for first in range(0, len(aside), _PAGE):
        yield from _unlink(core, shard, aside[first : first + _PAGE])
    [registry] = yield [command("HGET", shard.clock, "spouts")]
    names = {*core.spouts, *(name for _, name in registries.spouts(registry or b""))}
    spent = {*shard.declared(names), *shard.of_steps, shard.traces} - {shard.removed}
    yield from _unlink(core, shard, sorted(spent))


def _remove_slabs(core: Core, shard: keys.Shard) -> Operation[None]:
    [count] = yield [command("HLEN", shard.slabs)]
    for _ in range(-(-int(count) // _PAGE)):
        [slabs] = yield [command("HRANDFIELD", shard.slabs, _PAGE)]
        yield from _unlink(core, shard, [shard.vector(slab) for slab in slabs if not ids.is_one(slab)])
        yield from _unlink(core, shard, [], slabs)


def _unlink(
    core: Core, shard: keys.Shard, gone: Sequence[bytes], slabs: Sequence[bytes] = ()
) -> Operation[None]:
    """Removes keys of a shard one by one: the slot may be migrating to another node, which has some already.

    Raises TopologyInUse if the topology was made anew since.
    """
    calls = [topologies.unlink_removed(shard, [key]) for key in gone]
    if slabs:
        calls.append(topologies.unlink_removed(shard, [], slabs))
    replies = yield calls
    if 0 in replies:
        raise _made_anew(core)


def _each(table: bytes, key_of: Callable[[bytes], bytes | None]) -> Operation[None]:
    """Empties a hash, and removes before each field the key that it leads to, if any."""
    [count] = yield [command("HLEN", table)]
    for _ in range(-(-int(count) // _PAGE)):  # no further, if a program still writes to it
        [members] = yield [command("HRANDFIELD", table, _PAGE)]
        if not members:
            return
        # One by one: the slot may be migrating to another node, which has some of them already.
        yield [command("UNLINK", key) for field in members if (key := key_of(field)) is not None]
        yield [command("HDEL", table, *members)]
