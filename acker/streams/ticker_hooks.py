"""The ticker's hooks: rows wait through a downtime, and trees that expire are given a place."""

import logging

from acker.errors import AckerError
from acker.ledger import tick
from acker.ledger.core import Core
from acker.ledger.ticker import Hooks
from acker.store.operation import Operation
from acker.streams import downtime
from acker.streams.places import reasons

_log = logging.getLogger(__name__)


def explain(core: Core) -> Operation[tick.Reasons]:
    """Finds why trees expire (`acker.streams.places.reasons.explain`); an error is logged.

    It must keep no tree from its expiration.
    """
    try:
        return (yield from reasons.explain(core))
    except AckerError as error:
        _log.error("%s: trees expire, and it is not known where they were: %s", core.config.name, error)
        return tick.Reasons()


HOOKS = Hooks(before_rotation=downtime.keep, explain=explain)
