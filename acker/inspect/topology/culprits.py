"""Culprits of a topology that is full or slow: the spout or the stream that keeps most trees open."""

from acker.inspect.topology.facts import Facts
from acker.inspect.topology.troubles import Place, words


def most_open(facts: Facts) -> tuple[str, Place | None]:
    """The spout or the stream that keeps most trees open, as far as that is known."""
    totals = facts.totals
    if facts.unconfirmed and totals.outstanding > 2 * totals.pending:
        age, name = max((age, name) for name, age in facts.unconfirmed.items())
        said = f"; most are outcomes that are not confirmed, of spout {name} for {words(age)}"
        return said, Place("spout", name)
    return most_waiting(facts)


def most_waiting(facts: Facts) -> tuple[str, Place | None]:
    """The subscription with the most rows to be acked."""
    rows, stream, name = max(
        (
            (totals.rows_behind, stream.name, totals.name)
            for stream in facts.streams
            for totals in stream.subscriptions
            if totals.name is not None
        ),
        default=(0, "", ""),
    )
    if rows <= 0:
        return "", None
    return f"; {rows:,} rows of stream {stream} wait for {reader(facts, stream, name)}", Place(
        "reads", stream, name
    )


def reader(facts: Facts, stream: str, subscription: str) -> str:
    """The step that reads a stream, if it is the only one; otherwise the subscription."""
    readers = {step.name for step in facts.steps if stream in step.reads and step.kind != "spout"}
    return readers.pop() if len(readers) == 1 else f"subscription {subscription}"
