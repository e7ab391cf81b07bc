"""Records of a spout as rows of an external stream, and a step that acks rows."""

from typing import Any

from acker import Topology


def source(topology: Topology, count: int, rows: int = 1, stream: str = "items") -> list[Any]:
    """A spout's records, each as so many rows in a segment of its own; not flushed."""
    spout, out = topology.spout("s"), topology.outgoing(stream, segment_rows=rows)
    headers = []
    for number in range(count):
        [tracked] = spout.emit(f"m{number}")
        headers += [out.inject([("n", b"%d" % number)], tracked) for _ in range(rows)]
    return headers


def work(topology: Topology, headers: list[Any], subscription: str = "count", stream: str = "items") -> None:
    """A step that only acks; not flushed."""
    items = topology.incoming(stream, subscription=subscription)
    items.ack(items.extract_many(headers))


class Message:
    """A message as confluent-kafka has it."""

    def __init__(self, headers: Any) -> None:
        self._headers = headers

    def headers(self) -> Any:
        """Its headers."""
        return self._headers
