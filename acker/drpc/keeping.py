"""Keeping calls: their requests do not expire before their deadline, and end at it.

The ticker does this right before it rotates, so a call lives until its deadline and no longer, even if its
worker and its caller are dead. Workers do it between two ticks, so that overdue calls end sooner.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together; a section
is the steps of a line between two gathers.
"""

from collections.abc import Collection, Mapping

import numpy as np

from acker.drpc import calls
from acker.drpc.registry import Description
from acker.ledger import ids
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.slabs import sections
from acker.ledger.slabs.causes import Cause
from acker.ledger.trees.wait import Wait
from acker.store import function_keys, keys
from acker.store.operation import Operation, Reply, command
from acker.store.records import passing_over
from acker.store.replies import pairs
from acker.streams import downtime

_PAGE = 500
_MOST_LATE = 20
"""Most pages of overdue calls that one pass answers; the next pass goes on."""
_OVER = Cause("it was answered, or its deadline has passed: no caller waits for it", "", retry=False)


def keep(core: Core) -> Operation[int]:
    """Keeps the pending calls of a topology's functions before its shards rotate; returns the kept slabs.

    Calls after their deadline are answered. An unreadable function is passed over and logged: its calls
    expire as other trees do.
    """
    kept = 0
    if not core.shards:
        return kept
    stored: Reply = ()
    with passing_over(f"{core.config.name}: calls of functions may expire", refusals=True):
        [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    for name, record in sorted(pairs(stored).items()):
        where = f"{core.config.name}: calls may expire"
        with passing_over(where, f"function {name!r:.100}", refusals=True):
            function = Description.load(record)
            if function.topology != core.config.name:
                continue
            for _ in range(_MOST_LATE):
                if (yield from calls.overdue(core, function)) < calls.PAGE:
                    break
            kept += yield from look_after(core, function)
    return kept


def waits(core: Core, slabs: Mapping[int, Collection[bytes]]) -> Operation[dict[bytes, Wait]]:
    """The waits of slabs, by shard, that have pending calls of functions: until their deadline.

    Changes nothing. An unreadable function is passed over, and logged.
    """
    by_slab: dict[bytes, Wait] = {}
    [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    wanted = [slab for names in slabs.values() for slab in names]
    for name, record in sorted(pairs(stored).items()):
        with passing_over(core.config.name, f"function {name!r:.100}"):
            function = Description.load(record)
            if function.topology == core.config.name:
                by_slab |= yield from _waits_of(core, function, wanted)
    return by_slab


def _waits_of(core: Core, function: Description, slabs: list[bytes]) -> Operation[dict[bytes, Wait]]:
    """The waits of slabs that have pending calls of a function."""
    keys_of_function = function_keys.Function(core.config.name, function.name)
    last = len(function.sections())  # the section that the function's spout has
    of_spout = {
        slab: sections.slab_of(sections.group_of(slab), last) if sections.of_line(slab) else slab
        for slab in slabs
    }
    asked = sorted(set(of_spout.values()))
    [kept] = yield [command("HMGET", keys.Spout(core.config.name, function.name).slabs, *asked)]
    there = [slab for slab, rows in zip(asked, kept, strict=True) if rows is not None]
    names = yield from outcomes.message_ids(core, there)
    until: dict[bytes, float] = {}
    for slab, calls_of_slab in names.items():
        if not calls_of_slab:
            continue
        waited, deadlines = yield [
            command("HMGET", keys_of_function.calls, *calls_of_slab),
            command("ZMSCORE", keys_of_function.deadlines, *calls_of_slab),
        ]
        ends = [
            float(end) / 1000
            for call, end in zip(waited, deadlines, strict=True)
            if call is not None and end is not None
        ]
        if ends:
            until[slab] = max(ends)
    return {
        slab: Wait(f"the answer of a call of {function.name}, until its deadline", until=until[own_slab])
        for slab, own_slab in of_spout.items()
        if own_slab in until
    }


def look_after(core: Core, function: Description) -> Operation[int]:
    """Keeps requests without answer over the next rotation, and fails all others, in all sections.

    Returns the number of kept slabs.
    """
    keys_of_function, kept = (
        function_keys.Function(core.config.name, function.name),
        keys.Spout(core.config.name, function.name).slabs,
    )
    cursor, sent = b"0", 0
    while True:
        [(cursor, stored)] = yield [command("HSCAN", kept, cursor, "COUNT", _PAGE)]
        by_slab = yield from outcomes.message_ids(core, list(pairs(stored)))
        names = {slab: its for slab, its in by_slab.items() if its}
        waited = yield [command("HMGET", keys_of_function.calls, *its) for its in names.values()]
        alive: dict[int, set[bytes]] = {}
        over: dict[bytes, list[int]] = {}
        for slab, callers in zip(names, waited, strict=True):
            if any(caller is not None for caller in callers):
                alive.setdefault(ids.shard_of(slab, core.config.ackers), set()).add(slab)
            if ended := [index for index, caller in enumerate(callers) if caller is None]:
                over[slab] = ended
        sent += yield from downtime.send_back(core, alive, 2)
        yield from _end(core, function, over)
        if cursor == b"0":
            return sent


def _end(core: Core, function: Description, over: Mapping[bytes, list[int]]) -> Operation[None]:
    """Fails requests, by slab and index, in the sections that the ledger still has."""
    failing: list[tuple[keys.Shard, bytes, ids.Ids]] = []
    for slab, indexes in over.items():
        own = np.int64(ids.anchor_at(slab, 0)) + ids.STEP * np.array(indexes, dtype=np.int64)
        for section in range(1, len(function.sections()) + 1):
            anchors = sections.within(own, section)
            name = ids.slab_of(int(anchors[0]))
            failing.append((core.shards[ids.shard_of(name, core.config.ackers)], name, anchors))
    there = yield [command("HEXISTS", shard.slabs, name) for shard, name, _ in failing]
    submissions = [
        core.fail(anchors, _OVER.encode())
        for (_, _, anchors), exists in zip(failing, there, strict=True)
        if exists
    ]
    yield from idempotence.submit(core, [call for one in submissions for call in one.calls])
