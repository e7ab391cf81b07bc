"""External streams without a mechanism of exactness: histories find each."""

import pytest

from acker.streams.staging.external import commit, receiving
from tests.helpers.faults.mutants import Mutant
from tests.helpers.faults.simulator import run_history
from tests.helpers.worlds.external import ExternalWorld

pytestmark = [pytest.mark.damage]

WAIT = "    if wait then call('HSET', key, 'oldest'"
OR = "call('BITOP', 'OR', SCRATCH, SCRATCH, OPERAND)\n    external.scratch"
BURIED = "    call('DEL', key)\n    call('HSET', key, 'state', state)"
EARLY = (("source", "announce"), ("step", 500), ("sink", 500), ("source", 500), ("look", 1))
MUTANTS = [
    Mutant(
        "early bits wait in the hash that they make",
        ExternalWorld,
        [(None, WAIT, f"    call('HDEL', key, 'bits')\n{WAIT}")],
        known=EARLY,
    ),
    Mutant(
        "the script that emits counts bits that came before",
        ExternalWorld,
        [(None, "if external.emitted(chunk.staged, waits) ~= 'o' then", "if false then")],
        known=EARLY,
    ),
    Mutant(
        "fails of rows are taken before bits are counted",
        ExternalWorld,
        [(None, "local list = fails_here(external.fails(fails), positions, mask)", "local list = {}")],
        known=(("source", 500), ("step", 500), ("sink", 500)),
    ),
    Mutant(
        "early emits wait as long as early bits",
        ExternalWorld,
        [(None, "own.rows and 1000 * own.ttl or 0", "0")],
        known=(("source", "track"), ("step", 500), ("tick", 4), ("source", 500), ("sink", 500)),
    ),
    Mutant(
        "bits are ORed",
        ExternalWorld,
        [(None, OR, OR.replace("'OR'", "'XOR'"))],
        known=(
            ("source", "announce"), ("other", "receive"), ("step", 500), ("other", 500), ("source", 500),
            ("sink", 500),
        ),
    ),
    Mutant(
        "a segment is acked only where all its bits are in",
        ExternalWorld,
        [
            (None, "if acking and facts[staged].rows and not facts[staged].full then", "if false then"),
            (None, "if lacking > 0 then", "if false then"),
        ],
        known=(("source", 500), ("step", "note_received"), ("look", 1)),
    ),
    Mutant(
        "an acked segment leaves a tombstone",
        ExternalWorld,
        [(None, BURIED, "    call('DEL', key)")],
        known=(("source", 500), ("other", "receive"), ("step", 500), ("sink", 500), ("other", 500)),
    ),
    Mutant(
        "bits are taken only where the shard holds what the commit emitted",
        ExternalWorld,
        [(receiving.call_of, "needed=progress.needs(part.shard)", "needed=''")],
        cluster=True,
        known=(
            ("source", 500), ("step", "receive"), ("step", "receive"), ("part", 2, 255), ("step", 3),
            ("look", 1),
        ),
    ),
    Mutant(
        "emits come before bits",
        ExternalWorld,
        [
            (
                commit._Running.fly,
                "staged, emitted, taken, acked, _ = yield from _in_order(requests)",
                "taken, acked, staged, emitted, _ = yield from _in_order("
                "[*requests[2:4], *requests[:2], requests[4]])",
            ),
            (receiving.call_of, "needed=progress.needs(part.shard)", "needed=''"),
        ],
        known=(("source", 500), ("step", "receive"), ("step", "receive"), ("step", "send"), ("look", 1)),
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mechanism)
def test_a_history_finds_a_mechanism_that_is_missing(valkey_url: str, mutant: Mutant) -> None:
    run_history(mutant.world, valkey_url, mutant.known, cluster=mutant.cluster)
    with mutant.living(), pytest.raises(Exception, match=r"."):
        run_history(mutant.world, valkey_url, mutant.known, cluster=mutant.cluster)
