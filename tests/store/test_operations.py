"""Operations without I/O: what they ask for, and what they make of each kind of answer."""

import contextlib

import pytest
import redis

from acker.errors import StoreError, StoreUnavailable
from acker.ledger import ids
from acker.ledger.calls import core as operations
from acker.ledger.calls import idempotence
from acker.ledger.calls.calls import FLIGHT_CALLS, Submission, Ticked, Updated, Writer
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import TopologyConfig
from acker.ledger.slabs.slabs import NewSlab
from acker.ledger.tick import tick
from acker.store.operation import FLIGHT, FLIGHT_BYTES, Operation, Reply, Request, abreast, command, flights

SPOUTS = redis.ResponseError("SPOUTS 3,7/0:a/2:b/6:c")
WRITER = redis.ResponseError("WRITER call 7 out of turn after 0")


@pytest.fixture
def core() -> Core:
    return Core(TopologyConfig("t", ackers=2), frozenset({"s"}))


def test_a_batch_of_any_size_goes_in_bounded_flights_in_its_order() -> None:
    small = [command("GET", b"key", n) for n in range(1300)]
    parts = list(flights(small))
    assert [len(part) for part in parts] == [FLIGHT, FLIGHT, 1300 - 2 * FLIGHT]
    assert [request for part in parts for request in part] == small
    large = [command("SET", b"key", bytes(FLIGHT_BYTES // 100 + 1)) for _ in range(250)]
    assert [len(part) for part in flights(large)] == [100, 100, 50]
    assert [len(part) for part in flights(large[:64])] == [64]
    assert list(flights([])) == []


def updates(core: Core, trees: int) -> Submission[Updated]:
    anchors = [int(ids.new_anchors(1)[0]) for _ in range(trees)]
    return core.update(ids.as_ids(anchors), ids.new_ids(trees))


def stamps(requests: list[Request]) -> list[tuple[object, object]]:
    """Writer and number of each request."""
    return [(request.args[1], request.args[2]) for request in requests]


def known_by(requests: list[Request]) -> list[tuple[object, ...]]:
    """The writers by which a shard tells calls apart."""
    return [(request.keys[0], *stamp) for request, stamp in zip(requests, stamps(requests), strict=True)]


def refuse_forever(operation: Operation[object], replies: list[Reply]) -> None:
    for _ in range(2 * operations.ATTEMPTS):
        operation.send(replies)


def finish(operation: Operation[object], replies: list[Reply]) -> object:
    with pytest.raises(StopIteration) as end:
        operation.send(replies)
    return end.value.value


def test_a_submission_has_a_few_calls_under_way_for_each_shard_and_few_writers(core: Core) -> None:
    submission = updates(core, 40_000)
    assert len(submission.calls) >= 40
    operation = idempotence.send(core, submission)
    requests = next(operation)
    writers: set[object] = set()
    seen: set[object] = set()
    while not submission.done:
        shards = [request.keys[0] for request in requests]
        assert all(shards.count(shard) <= FLIGHT_CALLS for shard in shards)
        stamped = set(known_by(requests))
        assert len(stamped) == len(requests)
        assert not stamped & seen
        seen |= stamped
        writers |= {writer for writer, _ in stamps(requests)}
        with contextlib.suppress(StopIteration):
            requests = operation.send([b"1 2"] * len(requests))
    assert submission.result() == Updated(len(submission.calls), 2 * len(submission.calls))
    assert len(writers) == FLIGHT_CALLS


def test_the_numbers_of_a_writer_follow_each_other_in_each_shard(core: Core) -> None:
    for number in (1, 2, 3):
        trees = ids.new_anchors(1)
        while ids.shard_of(ids.slab_of(int(trees[0])), 2):
            trees = ids.new_anchors(1)
        operation = idempotence.send(core, core.update(trees, ids.new_ids(1)))
        [request] = next(operation)
        assert request.args[2] == number
        finish(operation, [b"0 0"])


def test_a_call_that_knew_other_spouts_is_sent_again_with_the_same_stamp(core: Core) -> None:
    submission = updates(core, 1)
    operation = idempotence.send(core, submission)
    [first] = next(operation)
    [second] = operation.send([SPOUTS])
    assert (first.args[0], second.args[0]) == (b"", b"3,7/0:a/2:b/6:c")
    assert len(second.keys) == len(first.keys) + 3
    assert stamps([first]) == stamps([second])
    assert finish(operation, [b"0 0"]) == Updated()
    assert core.writers.take().id != core.writers.take().id


def test_a_writer_that_the_store_does_not_know_is_replaced_for_that_call(core: Core) -> None:
    writer = core.writers.take()
    writer.sequences = {0: 6, 1: 6}
    core.writers.give(writer)
    operation = idempotence.send(core, updates(core, 1))
    [first] = next(operation)
    assert stamps([first]) == [(writer.id, 7)]
    [second] = operation.send([WRITER])
    [(other, number)] = stamps([second])
    assert (other != writer.id, number) == (True, 1)
    finish(operation, [b"0 0"])
    assert core.writers.take().id != writer.id


def test_a_call_that_is_refused_again_and_again_is_an_error(core: Core) -> None:
    for refusal in (SPOUTS, WRITER):
        operation = idempotence.send(core, updates(core, 1))
        next(operation)
        with pytest.raises(StoreError, match=f"refused {operations.ATTEMPTS} times"):
            refuse_forever(operation, [refusal])


def test_a_rotation_refused_again_and_again_is_an_error_after_all_shards(core: Core) -> None:
    alone = set()

    def refuse_scripts(operation: Operation[int]) -> None:
        requests = next(operation)
        for _ in range(1000):
            if len(requests) == 1:
                alone.add(requests[0].key)
            requests = operation.send([SPOUTS if one.script else b"0" for one in requests])

    with pytest.raises(StoreError, match="SPOUTS"):
        refuse_scripts(tick.rotate(core))
    assert alone == {shard.clock for shard in core.shards}


def test_another_error_is_an_error_at_once(core: Core) -> None:
    operation = idempotence.send(core, updates(core, 1))
    next(operation)
    with pytest.raises(StoreError, match="BUSY"):
        operation.send([redis.ResponseError("BUSY")])


def test_only_calls_without_an_answer_are_sent_again(core: Core) -> None:
    submission = updates(core, 28_000)
    operation = idempotence.send(core, submission)
    sent = next(operation)
    again = operation.send([b"0 0", *[SPOUTS] * (len(sent) - 1)])
    assert set(known_by(again)) > set(known_by(sent)[1:])
    with pytest.raises(StoreUnavailable):
        operation.throw(StoreUnavailable())
    resent = next(idempotence.send(core, submission))
    assert set(known_by(resent)) >= set(known_by(sent)[1:])
    assert known_by(sent)[0] not in known_by(resent)


def test_writers_of_calls_without_an_answer_are_not_used_again(core: Core) -> None:
    operation = idempotence.send(core, updates(core, 1))
    [request] = next(operation)
    with pytest.raises(StoreUnavailable):
        operation.throw(StoreUnavailable())
    [(lost, _)] = stamps([request])
    assert core.writers.take().id != lost


def test_what_a_spout_tracks_is_answered_in_its_order(core: Core) -> None:
    slabs = []
    for _ in range(40):
        anchors = ids.new_anchors(2)
        slabs.append(NewSlab(anchors, ids.new_ids(2), [b"a", b"b"]))
    submission = core.track(slabs, "s")
    operation = idempotence.send(core, submission)
    requests = next(operation)
    shards = [request.keys[0] for request in requests]
    letters = dict(zip(shards, "AR", strict=True))
    counts = [sum(isinstance(word, bytes) for word in request.args[5::2]) for request in requests]
    replies = [(letters[shard] * count).encode() for shard, count in zip(shards, counts, strict=True)]
    result = finish(operation, replies)
    names = [ids.slab_of(int(slab.anchors[0])) for slab in slabs]
    assert result == [letters[core.shards[ids.shard_of(name, 2)].clock] for name in names]


def test_a_tick_of_no_shards_asks_for_nothing() -> None:
    with pytest.raises(StopIteration) as end:
        next(tick.tick(Core(TopologyConfig("t", ackers=0))))
    assert end.value.value == Ticked()


def test_an_error_of_one_shard_does_not_keep_the_others_from_draining(core: Core) -> None:
    drain = tick.drain(core)
    next(drain)
    drain.throw(StoreError("broken"))
    with pytest.raises(StoreError, match="broken"):
        drain.send([[b"0", b"0"]])
    drain = tick.drain(core)
    next(drain)
    with pytest.raises(StoreUnavailable):
        drain.throw(StoreUnavailable())


def test_a_writer_is_16_random_bytes() -> None:
    assert len({Writer().id for _ in range(100)}) == 100
    assert len(Writer().id) == 16


def test_operations_abreast_ask_in_one_batch_until_each_has_ended() -> None:
    def asks(name: str, times: int) -> Operation[list[object]]:
        found = []
        for number in range(times):
            found += yield [command("GET", f"{name}{number}{part}".encode()) for part in range(number + 1)]
        return found

    running = abreast([asks("a", 2), asks("b", 0), asks("c", 1)])
    asked = next(running)
    assert [request.key for request in asked] == [b"a00", b"c00"]
    asked = running.send([1, 2])
    assert [request.key for request in asked] == [b"a10", b"a11"]
    with pytest.raises(StopIteration) as ended:
        running.send([3, 4])
    assert ended.value.value == [[1, 3, 4], [], [2]]
