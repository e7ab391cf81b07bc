"""Collectors in other processes, and at their end."""

import multiprocessing
import os
import pickle
from typing import Any

import pytest

from acker import (
    Topology,
    Tuple,
)
from acker.collectors.bolt import Bolt
from tests.helpers.builders.collectors import Make, reported, statuses
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.cluster(slow=True)


def test_collectors_pickle_as_settings(make: Make) -> None:
    topology = make(ackers=2)
    spout = topology.spout("s", max_spout_pending=7)
    [kept] = spout.emit("m")
    again, bolt = pickle.loads(pickle.dumps((spout, topology.bolt("b"))))
    assert (again.name, again.max_spout_pending, again.pending) == ("s", 7, 0)
    assert isinstance(bolt, Bolt)
    assert bolt.topology.config == topology.config
    topology.flush()
    bolt.ack(Tuple.parse(str(kept)))
    bolt.topology.flush()
    assert statuses(reported(spout)) == {b"m": "acked"}
    bolt.topology.close()


def test_a_forked_child_does_not_send_what_its_parent_has_buffered(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [one], [two] = spout.emit("one"), spout.emit("two")
    bolt.ack(one)
    child = os.fork()
    if not child:
        status = 1
        try:
            bolt.ack(two)
            topology.flush()
            status = int(spout.pending != 0)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert statuses(reported(spout, 2)) == {b"one": "acked", b"two": "acked"}
    assert topology.counters()["late"] == 0


def test_close_sends_what_is_buffered_and_ends(make: Make) -> None:
    topology = make()
    spout, bolt = topology.spout("s"), topology.bolt("b")
    [each] = spout.emit("m")
    topology.close()
    topology.close()
    with pytest.raises(Exception, match="is closed"):
        spout.emit("n")
    with pytest.raises(Exception, match="is closed"):
        bolt.ack(each)
    assert make().counters()["tracked"] == 1


def test_what_nobody_holds_any_more_is_sent_all_the_same(make: Make, url: str) -> None:
    topology = make()
    spout = topology.spout("s")
    [each] = spout.emit("m")
    topology.flush()
    Topology(url, "t", linger=15.0).bolt("b").fail(Tuple.parse(str(each)), "from afar")
    [outcome] = wait_until(lambda: list(spout.outcomes()))
    assert outcome.reason == "from afar"


def ack_and_end(topology: Topology, text: str) -> None:
    """A task of a pool: it acks, and returns."""
    topology.bolt("count").ack(Tuple.parse(text))


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_of_multiprocessing_sends_its_acks_before_it_ends(make: Make, method: str) -> None:
    topology = make()
    spout = topology.spout("lines")
    [given] = spout.emit("m")
    topology.flush()
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=ack_and_end, args=(topology, str(given)))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert [outcome.status for outcome in reported(spout)] == ["acked"]
