"""Late acks: their trees were over before, mostly because batches take longer than the timeout.

The ledger says for each update how many of its trees were finished, or are no longer known. A commit adds
that up for its acks, counts it with the subscription, and reports it to its caller.

Terms: a tree is all that comes of one record.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from acker.errors import AckerError
from acker.ledger.calls.core import Core
from acker.ledger.steps import step_registry
from acker.store import keys, replies
from acker.store.operation import Operation, Request, command
from acker.streams.log.subscriptions import Range
from acker.streams.staging.acks import Acked


@dataclass(frozen=True, slots=True)
class Late:
    """The late acks of a commit.

    Attributes:
        acks: The number of late acks.
        rows: The number of rows that the commit acked.
        age: Seconds since the oldest of the late rows were published.
    """

    acks: int
    rows: int
    age: float

    def text(self, who: str, timeout: float, seconds: float | None = None) -> str:
        """The warning. timeout: the topology's. seconds: the duration of the batch, if known."""
        took = "" if seconds is None else f"the batch took {_seconds(seconds)}; "
        said = (
            f"{who}: {self.acks:,} acks of its {self.rows:,} rows came too late; {took}rows were acked "
            f"{_seconds(self.age)} after they were published, the message timeout is {_seconds(timeout)}"
        )
        if self.age < timeout:
            return f"{said}: their trees had failed, or were older than the rows"
        return (
            f"{said}: their trees expired meanwhile and are replayed. Give a batch less (max_rows), call "
            "collector.keep_alive, or make the topology with a longer message_timeout"
        )


def note(core: Core, acked: Mapping[Range, Acked], unknown: int) -> Operation[Late | None]:
    """Counts late acks with their subscriptions; None if there are none.

    unknown: trees of emitted tuples that are no longer known: their acks are late, too. Acks of trees that
    the commit itself has failed do not count (lua/streams/staging/apply_staged.lua).
    """
    late, rows, oldest = 0, 0, 0
    for read_range, acks in acked.items():
        count, unknown = acks.late + unknown, 0
        rows += acks.rows
        if count:
            late += count
            oldest = min(oldest or acks.oldest, acks.oldest)
            key = keys.Stream(core.config.name, read_range.stream).subscriptions
            [there] = yield [command("HEXISTS", key, f"slot:{read_range.slot}")]
            if there:
                yield [command("HINCRBY", key, f"late:{read_range.slot}", count)]
    if not late:
        return None
    [instant] = yield [Request(keys.config(core.config.name), ["TIME"])]
    return Late(late, rows, max(0.0, replies.seconds(instant) - oldest / 1000))


def why_expired(core: Core) -> Operation[str]:
    """The reason why trees expire: the timeout, and the steps that have reported to take longer."""
    timeout = core.config.message_timeout
    text = f"not acked within the message timeout of {_seconds(timeout)}"
    try:
        steps = yield from step_registry.steps(core)
    except AckerError:
        return text
    slow = sorted(
        {(step.name, round(step.seconds, 1)) for step in steps if step.late and step.seconds >= timeout}
    )
    took = ", ".join(f"batches of {name!r} take {_seconds(seconds)}" for name, seconds in slow[:3])
    return f"{text}; {took}" if took else text


def _seconds(value: float) -> str:
    return f"{round(value, 1):,.10g} s"
