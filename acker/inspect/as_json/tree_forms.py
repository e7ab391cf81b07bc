"""Trees as JSON."""

from dataclasses import asdict

from acker.inspect.as_json.topology_forms import Form
from acker.inspect.as_json.values import instant, message_id_fields
from acker.inspect.trees.traces import TraceEvent
from acker.ledger.trees.trees import Tree


def tree(one: Tree) -> Form:
    """A tree."""
    return {
        "anchor": str(one.anchor),
        "state": one.state,
        "ack_value": str(one.value),
        "failure": one.failure,
        "spout": one.spout,
        **message_id_fields(one.message_id),
        "tracked_at": instant(one.tracked_at),
        "age": one.age,
        "time_left_earliest": one.time_left_earliest,
        "time_left_latest": one.time_left_latest,
        "shard": one.shard,
        "bucket": one.bucket,
        "slab": str(one.slab),
        "index": one.index,
    }


def trace_event(one: TraceEvent) -> Form:
    """What became of a traced tree."""
    return {**asdict(one), "at": instant(one.at), "text": one.text()}
