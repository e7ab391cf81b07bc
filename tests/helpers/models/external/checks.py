"""The end of a history of the model: what must be over, what may be left, and what is known of old rows."""

from collections.abc import Iterator

from tests.helpers.models.external.truth import Violation
from tests.helpers.models.external.upkeep import open_trees
from tests.helpers.models.external.world import World

BUCKETS = 3


def check_quiet(world: World) -> None:
    """Checks a world when all is done and read. Raises Violation."""
    for _ in range(2 * world.rules.pass_ends):  # entries leave by the pass after their ack
        world.upkeep()
    if world.scenario.ticking:
        _check_over(world)
        _check_entries(world)
    if world.whole:
        _check_void(world)
        _read_again(world)
        world.move(world.times.ttl + world.times.margin // 2)
        _read_again(world)
        for _ in range(2 * BUCKETS):  # behind the downtime all expires that is not over
            world.move(world.times.downtime // 3)
            world.tick()
        if left := [anchor for shard in world.shards for anchor in open_trees(shard)]:
            raise Violation(f"stuck: trees {left} neither end nor expire")
        _read_again(world)
        _check_empty(world)


def _outcomes(world: World) -> Iterator[tuple[int, str]]:
    for anchor in world.truth.completed:
        yield anchor, world.shards[world.place(anchor)].trees.outcome(anchor)


def _check_over(world: World) -> None:
    """A tree is over when its source has flushed and all is read; trees of lost rows are excused."""
    excused, may_fail = world.truth.excused(), world.truth.may_fail()
    for anchor, outcome in _outcomes(world):
        if anchor in excused or world.truth.completed[anchor] >= BUCKETS - 1:
            continue
        if outcome == "expired":
            raise Violation(f"late: tree {anchor} has expired, though nothing of it was lost")
        if not outcome:
            raise Violation(f"stuck: tree {anchor} is not over, though all is done")
        if outcome == "failed" and anchor not in may_fail:
            raise Violation(f"void: tree {anchor} has failed, for a row that was not sent")


def _check_entries(world: World) -> None:
    """No entry is left of a segment that all have acked."""
    for stream in world.streams.values():
        for token, entry in stream.entries.items():
            places = [(shard, token, slot) for slot in entry.slots for shard in entry.segment.shards]
            if places and all(place in world.truth.acked for place in places):
                raise Violation(f"owed: all have acked {token}, and its entry waits")


def _check_void(world: World) -> None:
    """The trees of a void segment are over."""
    for shard in world.shards:
        for key, staged in shard.staged.items():
            if staged.void and staged.state != 2 and open_trees(shard) & set(staged.content.vector):
                raise Violation(f"unfailed: {key} is void, and its trees wait")


def _read_again(world: World) -> None:
    """All rows are read again: rows of acked and of old segments are over."""
    for name, transport in world.transports.items():
        for slot in world.truth.slots[name]:
            known: dict[tuple[str, int], bool] = {}
            for row in transport.rows:
                world.look(row, name, slot, world.streams[name].key, known)


def _check_empty(world: World) -> None:
    """No key is left when all times are over."""
    world.move(world.times.hold + 1)
    for shard in world.shards:
        shard.trees.forget()
        world.tick()
        if shard.staged:
            raise Violation(f"left: {list(shard.staged)} when all times are over")
        if waiting := [name for name, slab in shard.trees.slabs.items() if not slab.tracked]:
            raise Violation(f"left: slabs {waiting} wait when all times are over")
