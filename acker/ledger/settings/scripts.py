"""The scripts of topologies and their settings as functions (as in acker/ledger/calls/scripts.py)."""

from collections.abc import Mapping

from acker.ledger.settings.config import TopologyConfig
from acker.store import keys
from acker.store.operation import Request, script


def open_topology(config: TopologyConfig, fields: Mapping[str, int | str]) -> Request:
    """Stores a configuration where there is none."""
    return _configuring("open_topology", config, fields)


def configure(config: TopologyConfig, fields: Mapping[str, int | str]) -> Request:
    """Changes fields of a stored configuration."""
    return _configuring("configure", config, fields)


def _configuring(name: str, config: TopologyConfig, fields: Mapping[str, int | str]) -> Request:
    args = [word for field in fields.items() for word in field]
    return script(name, [keys.config(config.name)], args, config.wait)


def read_epoch(topology: str, epoch: str) -> Request:
    """Reads the name that a topology has in this store, and gives it that one where it has none."""
    return script("read_epoch", [keys.config(topology)], [epoch])


def register_spout(config: TopologyConfig, spout: str, most: int) -> Request:
    """Registers a spout of a topology, unless it has its most spouts."""
    own = [keys.config(config.name)]
    return script("register_spout", own, [keys.SPOUT_FIELD + spout, most], config.wait)


def remove_spout(config: TopologyConfig, spout: str) -> Request:
    """Removes a spout from its topology."""
    return script("remove_spout", [keys.config(config.name)], [keys.SPOUT_FIELD + spout], config.wait)


def clear_removed(shard: keys.Shard, removed: bytes) -> Request:
    """Lets a shard of a removed topology take calls again."""
    return script("clear_removed", [shard.clock], [removed])
