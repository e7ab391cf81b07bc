"""Another spout of the topology: its records have the message ids of the source's, and are acked at once."""

import contextlib
from contextlib import ExitStack

from acker import Topology
from acker.collectors.spout import Spout
from acker.errors import AckerError
from harness.chaos.plan import CLIENT_TIMEOUT
from harness.chaos.records import OTHER_TREE, Records

_MOST = 20


class Rival:
    """It works in the process of the runner, when it is asked to."""

    def __init__(self, url: str, topology: str, message_timeout: float, records: Records) -> None:
        self._url, self._name, self._message_timeout = url, topology, message_timeout
        self._records = records
        self._anchors: set[int] = set()
        self._spout: Spout | None = None
        self._stack = ExitStack()

    def _opened(self) -> Spout:
        if self._spout is None:
            topology = Topology(
                self._url, self._name, message_timeout=self._message_timeout, timeout=CLIENT_TIMEOUT
            )
            self._bolt = self._stack.enter_context(topology).bolt("rival")
            self._spout = topology.spout("rival")
        return self._spout

    def work(self) -> None:
        """Emits and acks under the message ids of what the source has in flight. Raises AckerError."""
        spout = self._opened()
        for name in self._records.flying(_MOST):
            [own] = spout.emit(name, timeout=CLIENT_TIMEOUT)
            self._anchors.update(own.anchors)
            self._bolt.ack(own)
        spout.topology.flush()
        self.take()

    def take(self) -> None:
        """Takes and confirms what has come, where the store answers."""
        if self._spout is None:
            return
        with contextlib.suppress(AckerError):
            for outcome in self._spout.outcomes():
                if outcome.anchor not in self._anchors:
                    self._records.odd(OTHER_TREE, f"the rival learns of {outcome}")
                self._spout.confirm(outcome)
            self._spout.topology.flush()

    def close(self) -> None:
        """Lets go of the topology."""
        with contextlib.suppress(AckerError):
            self._stack.close()
