"""Topologies with a graph to look at: steps that have said who they are, and rows in their streams."""

from acker.ledger.client import Ledger
from acker.ledger.slabs.causes import Cause
from acker.ledger.steps import step_registry
from acker.ledger.steps.step_registry import Step
from acker.streams import Stream
from tests.helpers.builders.streaming import ack, emit, take


def chain(ledger: Ledger, length: int) -> None:
    """A spout `s` and so many steps, each of which reads what the one before it emits.

    The first step has failed 12 of 1,000 trees, and 200 rows wait for the last one.
    """
    for number in range(-1, length):
        at_work(
            ledger,
            f"step-{number}" if number >= 0 else "s",
            reads=f"stream-{number}" if number >= 0 else "",
            emits=f"stream-{number + 1}" if number + 1 < length else "",
        )
    anchors = emit(ledger, 1_000, "stream-0")
    ledger.send(ledger.core.fail(anchors[:12], Cause("no such <b>word</b>", "step-0").encode()))
    ack(ledger, take(ledger, "stream-0"))
    emit(ledger, 200, f"stream-{length - 1}")


def at_work(ledger: Ledger, name: str, reads: str = "", emits: str = "") -> None:
    """A step says that it is at work, or a spout if it reads no stream; its subscription is made."""
    if reads:
        Stream(ledger, reads).subscribe("default")
    step = Step(
        name,
        "bolt" if reads else "spout",
        "app-1",
        "nightly load",
        f"query of {name}",
        batch=17,
        seconds=0.4,
        reads=(reads or "kafka[orders]",),
        emits=(emits,) if emits else (),
    )
    ledger.run(step_registry.register(ledger.core, step))
