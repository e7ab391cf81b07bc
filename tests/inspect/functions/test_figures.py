"""Figures of functions: the ends of their calls, counted exactly, and the step of a call."""

import threading
from typing import Any

import numpy as np
import pytest

from acker.collectors.topology import Topology
from acker.drpc import LinearDRPC, Out, calls
from acker.drpc.calls import Status
from acker.drpc.registry import Description
from acker.errors import DRPCFailed, DRPCTimeout, UnreadableRecord
from acker.inspect.functions import call_progress
from acker.inspect.functions.call_progress import CallHead, Progress, State
from acker.inspect.functions.figures import MINUTES, Figures, figures
from acker.inspect.trees import pages
from acker.ledger import ids
from acker.ledger.slabs import sections
from acker.ledger.slabs.slabs import NewSlab
from acker.store import function_keys
from acker.store.operation import command
from tests.helpers.builders.counting import Count, N, counting, fan, of_result
from tests.helpers.models.latencies import bucket_of


def seen(topology: Topology) -> Figures:
    return topology.ledger.run(figures(topology.ledger.core, topology.drpc("count").function))


def follow(topology: Topology, request: str) -> Progress:
    found = topology.ledger.run(
        call_progress.follow(topology.ledger.core, topology.drpc("count").function, request)
    )
    assert found is not None
    return found


def listed(topology: Topology, *, ended: bool) -> list[CallHead]:
    core, what = topology.ledger.core, topology.drpc("count").function
    return topology.ledger.run((call_progress.answered if ended else call_progress.pending)(core, what))


def answer(topology: Topology, what: Description, request: str, text: str) -> int:
    def operation() -> Any:
        [told] = yield [calls.answer(topology.ledger.core, what, request, text)]
        return told

    return int(topology.ledger.run(operation()))


def test_each_call_is_counted_once_by_how_it_ended(topology: Topology) -> None:
    with counting().work(topology):
        client = topology.drpc("count")
        client.execute_many(range(30))
        for _ in range(2):
            with pytest.raises(DRPCFailed):
                client.execute("bad")
    late = topology.drpc("count").submit(1, timeout=0.01)  # nobody works on it
    while not topology.ledger.run(calls.overdue(topology.ledger.core, client.function)):
        pass
    with pytest.raises(DRPCTimeout):
        late.result()
    found = seen(topology)
    for counted in (found.total, found.recent):
        assert (counted.answered, counted.failed, counted.timed_out) == (30, 2, 1)
        assert sum(counted.latencies.values()) == 30
        failed, waited = counted.causes
        assert (failed.status, failed.steps, failed.calls) == (Status.FAILED, ("fan",), 2)
        assert failed.text == "bad arguments"
        assert (waited.status, waited.calls) == (Status.TIMED_OUT, 1)
        assert 0 < (counted.latency.p50 or 0) <= (counted.latency.p99 or 0) < 60
    assert found.total.rate is None
    assert 60 * MINUTES <= (found.recent.seconds or 0) < 60 * (MINUTES + 1)
    assert found.recent.rate == pytest.approx(33 / (found.recent.seconds or 1))
    assert sum(found.minutes) == 33
    assert (found.pending, found.late) == (0, 0)


def test_an_answer_that_is_sent_again_is_counted_once(topology: Topology) -> None:
    counting().register(topology)
    call = topology.drpc("count").begin(1)
    call.begun.result()
    what = topology.drpc("count").function
    assert seen(topology).pending == 1
    assert [answer(topology, what, call.request, "f bad") for _ in range(3)] == [1, 0, 0]
    assert (seen(topology).total.failed, seen(topology).total.calls) == (1, 1)


def test_a_latency_is_in_the_bucket_that_the_ledger_has_for_it(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    what, own = client.function, function_keys.Function("t", "count")
    for took in (0, 1, 1000, 86_400_000):
        call = client.begin(1)
        call.begun.result()
        [who] = topology.ledger.store.send([command("HGET", own.calls, call.request)])
        name, _, at = who.decode().partition(" ")
        topology.ledger.store.send([command("HSET", own.calls, call.request, f"{name} {int(at) - took}")])
        assert answer(topology, what, call.request, 'r "x"') == 1
        [head] = [one for one in listed(topology, ended=True) if one.request == call.request]
        assert head.took is not None
        assert took <= 1000 * head.took < took + 60_000
        assert seen(topology).total.latencies[bucket_of(round(1000 * head.took))] >= 1
    assert sum(seen(topology).total.latencies.values()) == 4


def test_causes_are_bounded_and_what_is_over_them_is_counted_together(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    open_calls = [client.begin(1) for _ in range(55)]
    for number, call in enumerate(open_calls):
        call.begun.result()
        answer(topology, client.function, call.request, f"ffan {'x' * number}y")
    causes = seen(topology).total.causes
    assert sum(one.calls for one in causes) == 55
    assert len(causes) == 51
    assert (causes[0].calls, causes[0].text, causes[0].steps) == (5, "", ())


def test_minutes_that_are_over_are_forgotten_and_the_total_stays(topology: Topology) -> None:
    counting().register(topology)
    client, own = topology.drpc("count"), function_keys.Function("t", "count")
    call = client.begin(1)
    call.begun.result()
    answer(topology, client.function, call.request, "f bad")
    store = topology.ledger.store
    [stored] = store.send([command("HGETALL", own.counted)])
    minute = max(int(name.split(b" ")[0]) for name in stored[::2])
    for name, value in zip(stored[::2], stored[1::2], strict=True):
        if not name.startswith(b"0 "):  # as if it had been a while ago
            store.send(
                [
                    command("HSET", own.counted, name.replace(b"%d" % minute, b"%d" % (minute - 12)), value),
                    command("HDEL", own.counted, name),
                ]
            )
    assert (seen(topology).recent.calls, seen(topology).total.calls) == (0, 1)
    second = client.begin(1)
    second.begun.result()
    answer(topology, client.function, second.request, "f bad")
    [fields] = store.send([command("HKEYS", own.counted)])
    assert not [name for name in fields if name.startswith(b"%d" % (minute - 12))]
    assert (seen(topology).recent.calls, seen(topology).total.calls) == (1, 2)


def test_counts_that_are_none_are_named(topology: Topology) -> None:
    counting().register(topology)
    own = function_keys.Function("t", "count")
    topology.ledger.store.send([command("HSET", own.counted, "x", 1)])
    with pytest.raises(UnreadableRecord, match="calls of function 'count': expected counts, got b'x'"):
        seen(topology)


def states(found: Progress) -> list[tuple[str, State]]:
    return [(one.name, one.state) for one in found.steps]


def test_a_call_tells_how_far_each_step_is(topology: Topology) -> None:
    entered, leave, last = threading.Event(), threading.Event(), threading.Event()

    def slow(row: dict[str, Any], out: Out) -> None:
        entered.set()
        leave.wait(60)
        fan(row, out)

    class Waits(Count):
        def finished(self, out: Out) -> None:
            last.wait(60)
            super().finished(out)

    function = LinearDRPC("count").step("fan", slow, columns=N).gather("count", Waits)
    function.register(topology)
    client = topology.drpc("count")
    call = client.begin(3)
    call.begun.result()
    [head] = listed(topology, ended=False)
    assert (head.request, head.status) == (call.request, Status.PENDING)
    assert states(follow(topology, call.request)) == [("fan", State.NO_WORKERS), ("count", State.WAITING)]
    assert (head.deadline or 0) > (head.at or 0) > 1e9
    with function.work(topology):
        entered.wait(60)
        found = follow(topology, call.request)
        assert states(found) == [("fan", State.WORKING), ("count", State.WAITING)]
        assert found.steps[0].since is not None
        leave.set()
        while (found := follow(topology, call.request)).steps[1].state is not State.WORKING:
            pass
        assert states(found) == [("fan", State.FINISHED), ("count", State.WORKING)]
        while (found := follow(topology, call.request)).steps[1].since is None:  # it is released next
            pass
        last.set()
        assert call.future.result() == 3
    found = follow(topology, call.request)
    assert states(found) == [("fan", State.FINISHED), ("count", State.FINISHED)]
    assert (found.head.status, found.head.reason) == (Status.ANSWERED, "")
    assert 0 < (found.head.took or 0) < 60
    assert listed(topology, ended=False) == []
    assert [one.request for one in listed(topology, ended=True)] == [call.request]


def test_a_call_that_failed_tells_where_and_why(topology: Topology) -> None:
    with counting().work(topology):
        call = topology.drpc("count").begin("bad")
        with pytest.raises(DRPCFailed):
            call.future.result()
    found = follow(topology, call.request)
    assert states(found) == [("fan", State.FAILED), ("count", State.DROPPED)]
    assert (found.head.steps, found.head.reason) == (("fan",), "bad arguments")


def test_a_call_without_result_has_failed_in_its_last_step(topology: Topology) -> None:
    with of_result(lambda out: None).work(topology):
        call = topology.drpc("count").begin(2)
        with pytest.raises(DRPCFailed):
            call.future.result()
    assert states(follow(topology, call.request)) == [("fan", State.FINISHED), ("last", State.FAILED)]
    [cause] = seen(topology).total.causes
    assert (cause.steps, cause.text) == (("last",), "last gave no result")


def test_a_call_that_has_failed_and_that_nobody_has_answered_has_no_step_done(topology: Topology) -> None:
    counting(idempotent=True).register(topology)
    call = topology.drpc("count").begin(2)
    call.begun.result()
    core = topology.ledger.core
    [tree] = topology.ledger.run(pages.find(core, call.request)).trees
    topology.ledger.fail([int(sections.within(np.array([tree.anchor]), one)[0]) for one in (1, 2)], "bad")
    # A worker has to try it again, or to answer.
    assert states(follow(topology, call.request)) == [("fan", State.NO_WORKERS), ("count", State.WAITING)]


def test_a_call_is_followed_among_any_number_of_other_trees(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    begun = [client.begin(2) for _ in range(8)]
    for call in begun:
        call.begun.result()
    alone = [NewSlab(ids.new_anchors(1), ids.new_ids(1), [b"m"]) for _ in range(20_000)]
    topology.ledger.track_slabs(alone, spout="others")
    for call in begun:
        assert states(follow(topology, call.request)) == [("fan", State.NO_WORKERS), ("count", State.WAITING)]
        seen = topology.ledger.run(calls.see(topology.ledger.core, client.function, call.request))
        assert seen is not None
        assert seen.steps == ("fan",)
        found = follow(topology, call.request).seen
        assert found is not None
        [tree] = [one.tree for one in found.sections[-1:]]
        assert tree is not None
        assert tree.message_id == call.request.encode()


def test_calls_of_one_large_group_are_followed(topology: Topology) -> None:
    function = counting()
    function.register(topology)
    client = topology.drpc("count")
    thread = threading.Thread(
        target=client.execute_many, args=(range(600),), kwargs={"return_exceptions": True}
    )
    thread.start()
    while len(found := listed(topology, ended=False)) < 100:
        pass
    for one in found[::25]:
        # Its trees are tracked one after the other.
        while (now := follow(topology, one.request)).seen is None or states(now)[0][1] is State.FINISHED:
            pass
        assert states(now) == [("fan", State.NO_WORKERS), ("count", State.WAITING)]
    with function.work(topology):
        thread.join(60)
    assert not thread.is_alive()


def test_a_step_of_a_spark_job_is_not_said_to_have_no_workers(topology: Topology) -> None:
    LinearDRPC("count").step("fan", spark=True, columns=N).gather("count", Count).register(topology)
    call = topology.drpc("count").begin(2)
    call.begun.result()
    assert states(follow(topology, call.request)) == [("fan", State.WORKING), ("count", State.WAITING)]


def test_a_call_that_was_late_tells_which_steps_were_not_done(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    call = client.begin(2, timeout=0.05)
    call.begun.result()
    core = topology.ledger.core
    while not topology.ledger.run(calls.overdue(core, client.function)):
        pass
    found = follow(topology, call.request)
    assert (found.head.status, found.head.steps) == (Status.TIMED_OUT, ("fan",))
    assert states(found) == [("fan", State.FAILED), ("count", State.DROPPED)]
    [cause] = seen(topology).total.causes
    assert (cause.steps, cause.text) == (("fan",), "it waited for fan; without a worker: fan")


def test_a_call_that_was_cancelled_has_no_step_that_failed(topology: Topology) -> None:
    counting().register(topology)
    client = topology.drpc("count")
    call = client.begin(2)
    call.begun.result()
    assert topology.ledger.run(calls.cancel(topology.ledger.core, client.function, call.request))
    assert states(follow(topology, call.request)) == [("fan", State.DROPPED), ("count", State.DROPPED)]
