"""External streams without a mechanism: the scripts fall out of step with their model, or ack falsely."""

import pytest
import redis

from acker.collectors.external import outgoing
from acker.streams.staging.external import commit, receiving, voiding
from tests.helpers.faults.mutants import Mutant
from tests.helpers.faults.simulator import run_history
from tests.helpers.worlds.external import ExternalWorld
from tests.helpers.worlds.shadowed import ShadowedWorld

pytestmark = [pytest.mark.damage]

ALL = (("source", 500), ("step", 500), ("sink", 500))
EARLY = (("source", "announce"), ("step", 500), ("sink", 500), ("source", 500))
BEFORE_TRACK = ("source", "track")
"""Rows are in the transport, and their trees are not tracked."""
OLD = (
    *(BEFORE_TRACK, ("step", "receive"), ("half_hour", 1), ("step", 1), ("tick", 4), ("half_hour", 1)),
    ("source", 500),
)
"""Bits wait whose flush's emits are dropped before the segment is emitted."""
WORK = "rows, works = [incoming.extract(one.headers) for one in part], list[Work]()"
FIRST = f"{WORK}\n        incoming.ack(rows)\n        self._flush(topology, [])"
UNGUARDED = (receiving.call_of, "needed=progress.needs(part.shard)", "needed=''")
NOTED = """\
if facts.bits ~= '' then call('HSET', key, 'bits', facts.bits) end
    if facts.fails ~= '' then call('HSET', key, 'fails', facts.fails) end
    if wait"""
BURIED = "call('HSET', key, 'state', state)\n    call('EXPIRE', key, ttl + external.MARGIN)"


def missing(mechanism: str, old: str, new: str, *known: tuple[object, ...], cluster: bool = False) -> Mutant:
    """A mutant of the scripts."""
    return Mutant(mechanism, ShadowedWorld, [(None, old, new)], known=known, cluster=cluster)


MUTANTS = [
    # A process
    Mutant(
        "bits come after the function: a row that was acked is not stamped",
        ShadowedWorld,
        [
            (outgoing.Outgoing._check, "if row.ended:", "if False:"),
            (ExternalWorld._consume, WORK, FIRST),
        ],
        known=(("source", 500), ("step", "note_received"), ("look", 1)),
        of=5,
    ),
    Mutant(
        "emits come before bits",
        ShadowedWorld,
        [
            (
                commit._Running.fly,
                "staged, emitted, taken, acked, _ = yield from _in_order(requests)",
                "taken, staged, emitted, acked, _ = yield from _in_order("
                "[requests[2], *requests[:2], *requests[3:]])",
            ),
            UNGUARDED,
        ],
        known=(
            ("source", 500),
            *3 * (("step", "announce"),),
            ("step", "receive"),
            ("step", "send"),
            ("step", "die"),
            ("tick", 1),
            ("look", 1),
        ),
        of=5,
    ),
    Mutant(
        "a shard that has lost emits takes no bits",
        ShadowedWorld,
        [UNGUARDED],
        cluster=True,
        known=(
            ("source", 500),
            ("step", "receive"),
            ("step", "receive"),
            ("part", 2, 255),
            ("step", 3),
            ("look", 1),
        ),
    ),
    Mutant(
        "the trees of a void segment fail",
        ShadowedWorld,
        [(voiding.finish, 'if letter == "v"', "if False")],
        known=(*OLD, ("tick", 1)),
    ),
    # A shard
    missing(
        "bits are ORed",
        "'OR', SCRATCH, SCRATCH, OPERAND)\n    external.scratch",
        "'XOR', SCRATCH, SCRATCH, OPERAND)\n    external.scratch",
        ("source", 500),
        ("step", "receive"),
        ("step", "receive"),
        ("step", 1),
        ("again", "receive"),
    ),
    missing(
        "the script that emits looks at what waited",
        "if external.emitted(chunk.staged, waits) ~= 'o' then",
        "if false then",
        *EARLY,
    ),
    missing(
        "fails are looked at before bits",
        "if fails then\n      local list",
        "if fails and not bits then\n      local list",
        ("source", "track"),
        ("step", 500),
        ("source", 500),
    ),
    missing(
        "bits wait in the hash that they make",
        NOTED,
        "if wait",
        *EARLY,
    ),
    missing(
        "vectors fill a hash that bits have made",
        "if there and call('HDEL', KEYS[1], 'early') == 0 then",
        "if there then",
        *EARLY,
    ),
    missing(
        "vectors that are staged do not come again",
        "if there and call('HDEL', KEYS[1], 'early') == 0 then return 0 end",
        "",
        ("source", 500),
        ("again", "send"),
    ),
    missing(
        "early bits note the wait of their emits",
        "if wait then call('HSET', key, 'oldest'",
        "if false then call('HSET', key, 'oldest'",
        BEFORE_TRACK,
        ("step", 500),
    ),
    missing(
        "early bits that are too old are cleared",
        "if oldest and external.is_old(oldest) then",
        "if false then",
        *OLD,
    ),
    missing(
        "a flush whose emits may be dropped sends no bits",
        "if external.is_old(wait) then return",
        "if false then return",
        BEFORE_TRACK,
        ("step", "receive"),
        ("half_hour", 2),
        ("tick", 4),
        ("step", 1),
    ),
    missing(
        "emits wait for their track as long as bits",
        "own.rows and 1000 * own.ttl or 0",
        "0",
        BEFORE_TRACK,
        ("step", "receive"),
    ),
    missing(
        "a segment is acked only where it is full",
        "if lacking > 0 then",
        "if false then",
        ("source", 500),
        ("step", 500),
    ),
    missing("an acked segment leaves a tombstone", BURIED, "", *ALL),
    missing(
        "a void segment leaves a tombstone",
        "call('HSET', KEYS[1], 'state', string.rep('2', #state), 'void', 1)",
        "",
        *OLD,
    ),
    missing("an emitted segment is held", "call('EXPIRE', key, external.HOLD)", "", ("source", 500)),
    missing(
        "early bits do not stay for ever",
        "call('HSET', key, 'early', 1)\n      call('EXPIRE', key, ttl)",
        "call('HSET', key, 'early', 1)",
        ("source", "announce"),
        ("step", 500),
    ),
    missing(
        "vectors that come too late are refused",
        "then return -1 end",
        "then end",
        ("source", "send"),
        ("half_hour", 3),
        ("source", 1),
    ),
    # A stream
    missing(
        "a segment that is too old is refused",
        "if now > (sent + ttl) * 1000 then",
        "if false then",
        ("source", "announce"),
        ("half_hour", 3),
        ("source", 1),
    ),
    missing(
        "a process with another key is refused",
        "if not kind or key ~= ARGV[2] then",
        "if not kind then",
        ("source", "announce"),
        ("empty", 1),
        ("source", 1),
    ),
    missing(
        "the progress of a subscription is only raised",
        "if newest > before then",
        "if true then",
        ("source", "apply_staged"),
        ("step", "receive"),
        ("half_hour", 1),
        ("source", 500),
        ("other", 500),
        ("step", 500),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mechanism)
def test_a_history_finds_a_mechanism_that_is_missing(valkey_url: str, mutant: Mutant) -> None:
    run_history(mutant.world, valkey_url, mutant.known, cluster=mutant.cluster, seed=mutant.of)
    with mutant.living(), pytest.raises(AssertionError):
        run_history(mutant.world, valkey_url, mutant.known, cluster=mutant.cluster, seed=mutant.of)
    with redis.Redis.from_url(valkey_url) as raw:
        raw.flushall()  # a mutant may leave keys behind
