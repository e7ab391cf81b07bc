"""Changing the settings of an existing topology.

Bounds change at any time, all requested ones at once. Tickers, settlers, services and workers of lines follow
within seconds, Spark's queries at their next start. Topologies, spouts and bolts of plain Python keep the
settings that they have read.

Terms: a segment is some thousand rows of a stream, stored and acked as one piece.
"""

from acker.errors import TopologyInUse, ValidationError
from acker.inspect.topology.totals import totals
from acker.ledger.calls import core as operations
from acker.ledger.settings import topologies
from acker.ledger.settings.config import Settings, TopologyConfig
from acker.store.operation import Operation
from acker.streams.log.stream_totals import stream_totals


def configure(name: str, asked: Settings) -> Operation[TopologyConfig]:
    """Changes settings of a topology (`acker.ledger.settings.config.TopologyConfig`).

    Returns its whole configuration.

    None leaves a setting as it is. `ackers` never changes: it decides in which shard each tree lies. The
    message timeout changes when nothing is in flight: clients time by it what they send again. The stamp_ttl
    falls only without open segments of external streams. Raises
    ValidationError, TopologyInUse, UnknownTopology and UnreadableRecord; nothing has changed then.
    """
    core = yield from operations.open_topology(name, {}, create=False)
    stored = core.config
    wanted = topologies.changed(stored, asked)
    if wanted.ackers != stored.ackers:
        raise ValidationError(
            f"ackers: topology {name!r} has {stored.ackers} shards for its life, got {wanted.ackers}: where "
            "a tree lies follows from their number. Remove the topology when its jobs have ended, and make "
            "it anew, or take another name"
        )
    if wanted.timeout_ms != stored.timeout_ms:
        read = yield from totals(core)
        if read.outstanding > 0 or read.waiting > 0:
            raise TopologyInUse(
                f"topology {name!r} has {max(0, read.outstanding):,} trees in flight or with an outcome "
                f"that is not confirmed, and {read.waiting:,} slabs with messages for trees that are not "
                f"tracked yet: its message_timeout changes from {stored.message_timeout:g} to "
                f"{wanted.message_timeout:g} s only without any. Let the jobs finish them, and stop the jobs"
            )
    if wanted.stamp_ttl < stored.stamp_ttl:
        found = yield from stream_totals(core)
        if left := sum(one.segments for one in found if one.kind == "external"):
            raise TopologyInUse(
                f"topology {name!r} has {left:,} open segments of external streams: its stamp_ttl falls from "
                f"{stored.stamp_ttl:,} to {wanted.stamp_ttl:,} s only without any, because their rows would "
                "be taken for old. Let their consumers finish them"
            )
    return (yield from topologies.configure(stored, asked))
