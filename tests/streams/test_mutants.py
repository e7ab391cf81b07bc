"""Mutants: acker without a mechanism of exactness. The simulator finds each, by its seed or a next one.

A known history, shrunk from one that a search has found, spares the search while it still fails.
"""

from dataclasses import replace

import pytest

from acker.streams.commits import run, under_way
from acker.workers import leases
from tests.helpers.faults.mutants import Mutant
from tests.helpers.worlds.calls import CallWorld
from tests.helpers.worlds.claims import OnceWorld
from tests.helpers.worlds.commits import CommitWorld
from tests.helpers.worlds.settles import SettleWorld

pytestmark = [pytest.mark.slow, pytest.mark.damage]

STORED = "return {state, stored or ''} end\nlocal last"
GIVEN_BACK = "tonumber(redis.call('HGET', KEYS[1], 'given_back') or 0)"
MUTANTS = [
    Mutant(
        "stamps: a call takes effect once",
        CallWorld,
        [(None, "if sequence <= last then", "if false then")],
    ),
    Mutant(
        "prepared record: what is stored first is carried out",
        CommitWorld,
        [(None, f"if state then {STORED}", f"if state == 'complete' then {STORED}")],
        known=(("first", "begin_commit"), ("first", 1), ("other", 6)),
    ),
    Mutant(
        "state of staged vectors: a chunk is applied once",
        CommitWorld,
        [(None, "if not state or was >= to or again or others then", "if not state or others then")],
        cluster=True,
        known=(("first", "publish"), ("first", 1), ("first", "publish"), ("again", "apply_staged")),
    ),
    Mutant(
        "applied: inputs are acked only where all that was made is there",
        CommitWorld,
        [
            (
                None,
                "return (tonumber(call('HGET', key, 'applied') or 0) or 0) >= tonumber(count)",
                "return true",
            )
        ],
        backs=("part",),
        cluster=True,
        known=(("second", 1), ("second", 27), ("part", 1, 32)),
    ),
    Mutant(
        "fences: no commit is committed of what was given back",
        CommitWorld,
        [(None, f"if tonumber(ARGV[4]) < {GIVEN_BACK}", "if false")],
        known=(("other", "stage"),),
    ),
    Mutant(
        "bindings: what a commit has is not given back",
        CommitWorld,
        [(None, "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])\nredis.call('EXPIRE'", "redis.call('EXPIRE'")],
        known=(("first", "begin_commit"), ("first", 1), ("other", 2)),
    ),
    Mutant(
        "tombstones: a slab that is over is not tracked again",
        SettleWorld,
        [(None, "if once and (ended or call('HEXISTS', staged, 'tracked:' .. slab) == 1)", "if false")],
        cluster=True,
        known=(
            *(("write", 500), ("work", 1), ("settle", 500), ("work", 1), ("settle", 500), ("day", 1)),
            ("again", "track"),
        ),
    ),
    Mutant(
        "executor of a state: no two executors leave a commit in the same state",
        CommitWorld,
        [(run.Run._move, "self._executor", "'same'")],
        known=(("second", "apply_staged"), ("second", "fail")),
        most=0,
    ),
    Mutant(
        "leading move: a chunk takes effect only where the chunk before it has",
        CommitWorld,
        [(run.Run._cut, "if state:\n            chunk.append", "if False:\n            chunk.append")],
        most=3,
    ),
    Mutant(
        "leading move of a flight: a chunk takes effect only where the flight before it is not forgotten",
        CommitWorld,
        [
            (
                run.Run._cut,
                "if state:\n            chunk.append",
                "if state and made:\n            chunk.append",
            )
        ],
        backs=("back",),
        known=(
            *(("first", 2), ("back", 1), ("first", "publish"), ("back", 8), ("second", "publish")),
            *(("back", 16), ("first", 19), ("back", 35)),
        ),
        most=0,
        of=1,
    ),
    Mutant(
        "guard of operations: what they write takes effect only where all before it is there",
        CommitWorld,
        [(run.Run._guarded, "if not self.one_server or", "if True or")],
        backs=("back",),
        known=(("first", 8), ("back", 5), ("other", "record_effects")),
        most=0,
        of=3,
    ),
    Mutant(
        "commit heartbeat: nothing expires of a commit under way",
        CommitWorld,
        [(under_way.slabs, "if commit.age >=", "if True or commit.age >=")],
        cluster=True,
        known=(("other", 42), ("tick", 3)),
    ),
    Mutant(
        "begun rows: the next worker does not begin them again",
        OnceWorld,
        [(leases._end_begun, "if (yield from commits.finish(core, reader, number)):", "if True:")],
        known=(("one", 10), ("one", "die")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mechanism.partition(":")[0])
def test_the_simulator_finds_a_mechanism_that_is_missing(valkey_url: str, mutant: Mutant) -> None:
    seeds = (replace(mutant, seed=mutant.seed + more) for more in range(4))
    assert any(one.found(valkey_url, 100) for one in seeds)
