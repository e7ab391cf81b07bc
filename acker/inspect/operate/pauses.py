"""Pausing a spout: its new tracks are rejected, and its rows wait, until it is resumed.

What it has in flight goes on: acks, fails, outcomes, and the further attempts of its kept rows. A pause
is in every shard, and beside the spout's kept rows: each place refuses by its own copy. Copies that differ
after an interrupted call are seen in health (`acker.inspect.topology.health_rules`), and the same call again
mends them.
"""

import secrets
from typing import TypeAlias

from acker.errors import AckerError, UnknownSpout, UnknownTopology, ValidationError
from acker.inspect import scripts
from acker.ledger.calls import idempotence
from acker.ledger.calls.core import Core
from acker.ledger.settings import pauses, topologies
from acker.ledger.settings.config import OBSERVED, bounded_reason, check_name, check_spout
from acker.ledger.settings.pauses import Pause
from acker.store import keys
from acker.store.operation import Operation, Request, command
from acker.store.replies import seconds

_Seen: TypeAlias = tuple[bytes, int]
"""The mark of a spout's removals as it was read, and the time (ms) until which that counts."""
_ATTEMPTS = 5
"""Attempts to write where others do it at the same moment."""


def pause(core: Core, spout: str, *, by: str, reason: str = "") -> Operation[Pause]:
    """Pauses a spout, whatever its process does. Again, it replaces author and reason.

    Args:
        core: The topology.
        spout: The name of the spout, which may be a function's or a line's: then no call begins.
        by: The name of the author: at most 200 characters are kept.
        reason: The reason, which rejected tracks have in their outcome: at most 1 KiB.

    Raises:
        ValidationError: The reason or the name is not valid, the spout only observes, or nothing is tracked.
        UnknownSpout: The topology has no spout of that name.
        UnknownTopology: The topology was removed.
        StoreUnavailable: The spout may be paused in a part of the store: the same again goes on.
    """
    seen = yield from _check(core, spout)
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    paused = Pause(by[: pauses.MOST_BY], bounded_reason(reason), seconds(instant))
    yield from _write(core, spout, seen, paused.dump())
    return paused


def resume(core: Core, spout: str) -> Operation[None]:
    """Ends the pause of a spout; nothing changes where it is not paused. Raises what `pause` raises."""
    seen = yield from _check(core, spout)
    yield from _write(core, spout, seen, "")


def end_in_shards(core: Core, spout: str) -> Operation[None]:
    """Ends the pause of a spout that is removed, in all shards."""
    yield from idempotence.submit(core, [scripts.pause_spout(shard, spout, "") for shard in core.shards])


def _check(core: Core, spout: str) -> Operation[_Seen]:
    """Checks that a spout can be paused; returns its removals as they were before that."""
    if check_name(spout, "spout").endswith(OBSERVED):
        raise ValidationError(
            f"spout {spout!r} only observes, so it cannot be paused: its program does not wait for acker"
        )
    check_spout(spout)
    [seen] = yield from topologies.read_marks([keys.Spout(core.config.name, spout).removals])
    registered = yield from topologies.spouts(core.config.name)
    if registered is None:
        raise UnknownTopology.for_name(core.config.name)
    if spout not in registered:
        raise UnknownSpout(f"there is no spout {spout!r} of topology {core.config.name!r}")
    if not core.config.ackers:
        raise ValidationError(
            f"spout {spout!r} cannot be paused: topology {core.config.name!r} tracks nothing, with 0 ackers"
        )
    return seen


def _write(core: Core, spout: str, seen: _Seen, record: str) -> Operation[None]:
    """Writes the record of a pause, or "" for its end, to all places: none of a spout removed meanwhile."""
    yield from _write_kept(core, spout, seen, record)
    yield from idempotence.submit(core, [scripts.pause_spout(shard, spout, record) for shard in core.shards])
    if spout not in ((yield from topologies.spouts(core.config.name)) or ()):
        yield from end_in_shards(core, spout)
        raise _removed(core, spout)


def _write_kept(core: Core, spout: str, seen: _Seen, record: str) -> Operation[None]:
    spout_keys = keys.Spout(core.config.name, spout)
    for _ in range(_ATTEMPTS):
        [present] = yield [command("GET", spout_keys.paused)]
        if not record and (not present or present.startswith(pauses.RESUMED)):
            return
        value = record or f"{pauses.RESUMED.decode()} {secrets.token_hex(8)}"
        ttl = 0 if record else topologies.REMEMBERED
        [reply] = yield [scripts.pause_kept(spout_keys, present or b"", value, ttl, seen, core.config.wait)]
        if topologies.is_late(reply):
            raise _removed(core, spout)
        if reply:
            return
    raise AckerError(
        f"others pause and resume spout {spout!r} of topology {core.config.name!r} at this moment: try again"
    )


def _removed(core: Core, spout: str) -> UnknownSpout:
    return UnknownSpout(f"spout {spout!r} of topology {core.config.name!r} was removed meanwhile")
