"""Keeping calls: their requests do not expire before their own time, and end when it is over.

The ticker does this right before it rotates, so a call lives until its deadline and no longer. The worker
that had it in hand may be dead, and the caller's process, too. Workers do the same between two ticks, so that
what is over ends sooner.
"""

import logging
from collections.abc import Mapping

import numpy as np

from acker.drpc import calls
from acker.drpc.registry import Description
from acker.errors import StoreError, UnreadableRecord
from acker.ledger import ids
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.outcomes import outcomes
from acker.ledger.slabs import sections
from acker.ledger.slabs.causes import Cause
from acker.store import function_keys, keys
from acker.store.operation import Operation, command
from acker.store.replies import pairs
from acker.streams import downtime

_PAGE = 500
_MOST_LATE = 20
"""Pages of calls whose time is over that one pass answers; the next pass goes on."""
_OVER = Cause("it was answered, or its time is over: nobody waits for it", "", retry=False)
_log = logging.getLogger(__name__)


def keep(core: Core) -> Operation[int]:
    """Sees to the calls of all functions of a topology, before its shards rotate.

    Answers those whose time is over, and looks after the requests of all; returns how many slabs it kept. A
    function that cannot be read is
    passed over and logged: its calls expire as other trees do.
    """
    kept = 0
    if not core.shards:
        return kept
    try:
        [stored] = yield [command("HGETALL", keys.FUNCTIONS)]
    except StoreError as error:
        _log.error("%s: calls of functions may expire: %s", core.config.name, error)
        return kept
    for name, record in sorted(pairs(stored).items()):
        try:
            what = Description.load(record)
            if what.topology != core.config.name:
                continue
            for _ in range(_MOST_LATE):
                if (yield from calls.overdue(core, what)) < calls.PAGE:
                    break
            kept += yield from look_after(core, what)
        except (StoreError, UnreadableRecord, ValueError) as error:
            _log.error("%s, function %.100r: its calls may expire: %s", core.config.name, name, error)
    return kept


def look_after(core: Core, what: Description) -> Operation[int]:
    """Keeps requests without answer from the next rotation, and fails all others, in all sections.

    Returns how many slabs it kept.
    """
    own, kept = (
        function_keys.Function(core.config.name, what.name),
        keys.Spout(core.config.name, what.name).slabs,
    )
    cursor, sent = b"0", 0
    while True:
        [(cursor, stored)] = yield [command("HSCAN", kept, cursor, "COUNT", _PAGE)]
        found = yield from outcomes.message_ids(core, list(pairs(stored)))
        names = {slab: its for slab, its in found.items() if its}
        waited = yield [command("HMGET", own.calls, *its) for its in names.values()]
        alive: dict[int, set[bytes]] = {}
        over: dict[bytes, list[int]] = {}
        for slab, callers in zip(names, waited, strict=True):
            if any(one is not None for one in callers):
                alive.setdefault(ids.shard_of(slab, core.config.ackers), set()).add(slab)
            if ended := [index for index, one in enumerate(callers) if one is None]:
                over[slab] = ended
        sent += yield from downtime.send_back(core, alive, 2)
        yield from _end(core, what, over)
        if cursor == b"0":
            return sent


def _end(core: Core, what: Description, over: Mapping[bytes, list[int]]) -> Operation[None]:
    """Fails requests, by slab and index, in the sections that the ledger still has."""
    failing: list[tuple[keys.Shard, bytes, ids.Ids]] = []
    for slab, indexes in over.items():
        own = np.int64(ids.anchor_at(slab, 0)) + ids.STEP * np.array(indexes, dtype=np.int64)
        for section in range(1, len(what.sections()) + 1):
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
