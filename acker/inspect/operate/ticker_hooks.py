"""The ticker's hooks: calls live until their time is over, and rows wait through a downtime.

Trees that expire are given a place.

Terms: a tree is all that comes of one record; a slab is the trees that one call tracked together.
"""

import logging

from acker.drpc import keeping
from acker.errors import AckerError
from acker.inspect.locate import expiry_reasons, servers
from acker.ledger.calls.core import Core
from acker.ledger.tick import tick
from acker.ledger.tick.ticker import Hooks
from acker.store.operation import Operation
from acker.streams import downtime

_log = logging.getLogger(__name__)


def explain(core: Core) -> Operation[tick.Reasons]:
    """Finds why trees expire (`acker.inspect.locate.expiry_reasons.explain`); an error is logged.

    It must keep no tree from its expiration.
    """
    try:
        return (yield from expiry_reasons.explain(core))
    except AckerError as error:
        _log.error("%s: trees expire, and it is not known where they were: %s", core.config.name, error)
        return tick.Reasons()


def keep(core: Core) -> Operation[int]:
    """Keeps calls of functions and rows that wait from the next rotation; returns how many slabs.

    It also notes the servers of the topology (`acker.inspect.locate.servers`).
    """
    try:
        yield from servers.note(core)
    except AckerError as error:
        _log.warning("%s: its servers are not noted: %s", core.config.name, error)
    return (yield from keeping.keep(core)) + (yield from downtime.keep(core))


HOOKS = Hooks(before_rotation=keep, explain=explain)
