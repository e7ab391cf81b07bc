"""Operations that are run step by step, so that others come in between."""

from collections.abc import Sequence

from acker.ledger.client import Ledger
from acker.store.operation import Operation, Request
from tests.helpers.faults.simulator import scripts_of


class Stepping:
    """An operation that is run step by step, one exchange each. ended: whether it has come to its end."""

    def __init__(self, ledger: Ledger, operation: Operation[object]) -> None:
        self._ledger, self._operation, self.ended = ledger, operation, False
        self._asked: Sequence[Request] = next(operation)

    def go_on(self, exchanges: int = 1_000) -> None:
        """Goes on, to the end or for so many exchanges."""
        try:
            for _ in range(exchanges):
                self._asked = self._operation.send(self._ledger.store.send(self._asked))
        except StopIteration:
            self.ended = True

    def until(self, script: str) -> None:
        """Goes on until it would send a script of a name."""
        while script not in scripts_of(self._asked):
            self._asked = self._operation.send(self._ledger.store.send(self._asked))
