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


def read_life(topology: str, life: str) -> Request:
    """Reads the name that a topology has in this store, and gives it that one where it has none."""
    return script("read_life", [keys.config(topology)], [life])


def register_spout(config: TopologyConfig, spout: str, most: int) -> Request:
    """Notes a spout of a topology, which may have so many."""
    own = [keys.config(config.name)]
    return script("register_spout", own, [keys.SPOUT_FIELD + spout, most], config.wait)


def forget_spout(config: TopologyConfig, spout: str) -> Request:
    """Takes a spout from those of its topology."""
    return script("forget_spout", [keys.config(config.name)], [keys.SPOUT_FIELD + spout], config.wait)
