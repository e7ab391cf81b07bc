"""Since when the servers of a topology have all that they had: a gate must not pass where something was lost.

A server that was started again, or a replica that was promoted, may lack the latest moments. So a note says
since when a key has been with its server (lua/inspect/note_server.lua), and a ticker keeps the notes new.
"""

from dataclasses import dataclass

from acker.inspect import scripts
from acker.ledger.calls.core import Core
from acker.store import keys
from acker.store.operation import Operation

_LIFE = 30 * 86_400_000
"""Milliseconds for which a spout's note is kept after the last look."""


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Times by the servers' clocks, in ms.

    Attributes:
        since: From when on nothing is lost, on all of them.
        now: The earliest of their times.
    """

    since: int
    now: int


def note(core: Core) -> Operation[ServerTimes]:
    """Notes the servers of all keys that tell what is open; returns since when they are known."""
    yield from core.refresh_spouts()
    name = core.config.name
    # Not every spout has keys in its slot, so the note of each has a key.
    spouts = [keys.Spout(name, spout).server for spout in sorted(core.spouts)]
    [topology_reply, *replies] = yield [
        scripts.note_server(keys.reached(name), keys.config(name)),
        *(scripts.note_server(shard.clock, shard.clock) for shard in core.shards),
        *(scripts.note_server(key, key, _LIFE) for key in spouts),
    ]
    # Keys on the server of the topology's own were there no longer than these: a new spout's may be younger.
    times = [(int(since), int(now)) for since, now, server in replies if server != topology_reply[2]]
    times.append((int(topology_reply[0]), int(topology_reply[1])))
    return ServerTimes(max(since for since, _ in times), min(now for _, now in times))
