"""Changing the settings of a topology that is there.

Bounds change at any time, all that are asked for at once. Tickers, settlers, services and who works on lines
follow within seconds, Spark's queries at their next start. Topologies, spouts and bolts of plain Python go on
with the settings that they have read.
"""

from acker.errors import TopologyInUse, ValidationError
from acker.inspect.topology.totals import totals
from acker.ledger.calls import core as operations
from acker.ledger.settings import topologies
from acker.ledger.settings.config import Settings, TopologyConfig
from acker.store.operation import Operation


def configure(name: str, asked: Settings) -> Operation[TopologyConfig]:
    """Changes settings of a topology (`acker.ledger.settings.config.TopologyConfig`).

    Returns its whole configuration.

    None leaves a setting as it is. `ackers` never changes: it decides in which shard each tree lies. The
    message timeout changes when nothing is in flight: clients time by it what they send again. Raises
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
        if read.held > 0 or read.waiting > 0:
            raise TopologyInUse(
                f"topology {name!r} has {max(0, read.held):,} trees in flight or with an outcome that is not "
                f"confirmed, and {read.waiting:,} slabs that wait for their track: its message_timeout "
                f"changes from {stored.message_timeout:g} to {wanted.message_timeout:g} s only without any. "
                "Let the jobs finish what is there, and stop them"
            )
    return (yield from topologies.configure(stored, asked))
