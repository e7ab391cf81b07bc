"""An interrupt at any step of a caller of functions: later calls get their own answers."""

from collections.abc import Callable

import pytest

from acker.collectors.topology import Topology
from acker.drpc.calling.client import Client
from acker.errors import DRPCFull
from tests.helpers.builders.counting import counting
from tests.helpers.faults.interrupts import each
from tests.helpers.servers.servers import wait_until

pytestmark = pytest.mark.slow

DRPC = ("client", "call_writer", "answer_listener", "callbacks", "in_doubt")
FILES = (
    *(f"acker/drpc/calling/{name}.py" for name in DRPC),
    "acker/streams/spout.py",
    "concurrent/futures/_base.py",
    "/threading.py",
)


def many(client: Client) -> None:
    assert client.execute_many([2, 0, 3]) == [2, 0, 3]


def in_turn(client: Client) -> None:
    """More than two calls go in turn: the later ones wait for the others."""
    assert client.execute_many([1, 2, 0]) == [1, 2, 0]


def retried(work: Callable[[Client], None], client: Client) -> None:
    """Calls of the work that was interrupted may be under way still, and have all the room."""

    def has_room() -> bool:
        try:
            work(client)
        except DRPCFull:
            return False
        return True

    wait_until(has_room)


def single(client: Client) -> None:
    assert client.execute(2) == 2


def keyed(client: Client) -> None:
    answer = client.submit(1, key="k")
    answer.add_done_callback(lambda _: None)
    assert answer.exception(10) is None
    assert answer.result() == 1
    assert not answer.cancel()


@pytest.mark.parametrize(("work", "strikes"), [(many, 120), (in_turn, 150), (single, 30), (keyed, 40)])
def test_an_interrupt_at_any_step_leaves_a_client_whose_calls_are_answered(
    topology: Topology, work: Callable[[Client], None], strikes: int
) -> None:
    with counting(max_pending=2 if work is in_turn else 10_000).work(topology):
        client = topology.drpc("count")
        work(client)
        assert each(FILES, lambda: work(client), lambda: retried(work, client)) > strikes
