"""Mutants of the model: each is without a mechanism, and a history that is named by its seed finds it."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.helpers.models.external.checks import check_quiet
from tests.helpers.models.external.rules import Rules
from tests.helpers.models.external.scenario import Scenario
from tests.helpers.models.external.truth import Violation
from tests.helpers.models.external.world import World


def run(seed: int, rules: Rules) -> tuple[str, World]:
    """Runs a history. Returns its violation, empty where there is none."""
    world = World(seed, rules)
    try:
        world.run()
        check_quiet(world)
    except Violation as violation:
        return str(violation), world
    return "", world


def always(scenario: Scenario) -> bool:
    """Any scenario."""
    return True


@dataclass(frozen=True)
class Mutant:
    """A mechanism that is missing.

    rules: without it. kinds: first words of the violations that it leads to. seed: a history that finds it.
    where: scenarios among which a search for such a seed looks.
    """

    mechanism: str
    rules: Rules
    kinds: tuple[str, ...]
    seed: int
    where: Callable[[Scenario], bool] = always

    def found(self, seed: int) -> bool:
        """True if a history finds it, and finds nothing with all mechanisms."""
        violation, _ = run(seed, self.rules)
        return violation.startswith(self.kinds) if violation else False


TREE, STUCK, LATE, KEY = ("tree",), ("stuck",), ("late",), ("key",)
MUTANTS = [
    # A process
    Mutant("bits come after the function", Rules(bits_after=False), TREE, 3),
    Mutant("offsets are committed after the flush", Rules(offsets_last=False), STUCK, 20),
    Mutant(
        "segments are announced before they are emitted", Rules(announced_first=False), ("late", "stuck"), 2
    ),
    Mutant("emits come before bits", Rules(emits_first=False), TREE, 5),
    Mutant("tuples that were taken over are acked last", Rules(tuples_last=False), TREE, 1),
    Mutant(
        "a shard that has lost emits takes no bits",
        Rules(guarded=False),
        TREE,
        117,
        lambda drawn: drawn.set_back,
    ),
    Mutant("bits of undelivered rows are sent", Rules(unsent_bits=False), STUCK, 24),
    Mutant("undelivered rows keep their position", Rules(unsent_rows=False), TREE, 53),
    Mutant("bits go to the shards of their rows", Rules(own_shards=False, masked=False), TREE, 12),
    Mutant("stamps have a time", Rules(stamp_time=False), KEY, 1),
    # A shard
    Mutant("bits are of positions, not of copies", Rules(counts="copies"), TREE, 27),
    Mutant("bits are ORed, and not XORed as by Storm", Rules(counts="edges"), ("tree", "stuck"), 2),
    Mutant("bits of no row do not count", Rules(cut=False), TREE, 6),
    Mutant("bits before the vectors make a hash", Rules(early=False), STUCK, 2),
    Mutant("bits wait in vectors that are not emitted", Rules(early_staged=False), STUCK, 2),
    Mutant("vectors fill a hash that bits have made", Rules(fills=False), ("refused",), 2),
    Mutant("staged vectors do not come again", Rules(staged_once=False), ("tree", "stuck"), 12),
    Mutant("the script that emits looks at fails and bits", Rules(emit_looks=False), STUCK, 2),
    Mutant("fails are looked at before bits", Rules(fails_first=False), TREE, 11),
    Mutant(
        "fails of rows that are not emitted wait",
        Rules(fails_wait=False),
        ("void", "tree"),
        131,
        lambda drawn: drawn.fails,
    ),
    Mutant("a fail comes with its bit", Rules(fails_with_bits=False), TREE, 31),
    Mutant("emits wait for their track as long as bits", Rules(early_waits=False), ("stuck", "late"), 122),
    Mutant(
        "a fail without room makes the segment void",
        Rules(room_voids=False),
        TREE,
        45,
        lambda drawn: drawn.room and drawn.fails,
    ),
    Mutant("an acked segment leaves a tombstone", Rules(tombstone=False), KEY, 2),
    Mutant("a tombstone stays for the margin of clocks", Rules(tombstone_margin=False), KEY, 2),
    Mutant("a segment that is too old is refused", Rules(late_refused=False), ("deaf",), 21),
    # A stream
    Mutant(
        "an emptied store has another key",
        Rules(key_renewed=False),
        ("tree", "key"),
        28,
        lambda drawn: drawn.emptied,
    ),
    Mutant(
        "a process with another key is refused",
        Rules(key_checked=False),
        ("tree", "key"),
        28,
        lambda drawn: drawn.emptied,
    ),
    Mutant("the progress of a subscription is only raised", Rules(received_raised=False), ("lowered",), 1),
    Mutant(
        "the clocks of open segments stand still",
        Rules(keeps_clocks=False),
        LATE,
        35,
        lambda drawn: drawn.ticks,
    ),
    Mutant("the clocks of lost segments run", Rules(lost_runs=False), STUCK, 5),
    Mutant("the pass ends what a process has left", Rules(pass_ends=False), STUCK, 2),
    Mutant("the pass takes entries out", Rules(pass_closes=False), ("owed",), 2),
]
