"""Ticks that a program makes itself, as the ticker makes them: rows wait, and what expires has a place."""

from acker.ledger.calls.calls import Ticked
from acker.ledger.calls.core import Core
from acker.ledger.tick import tick
from acker.ledger.tick.keeper import Keeper
from acker.ledger.tick.ticker import Hooks
from acker.store.operation import Operation


class Ticking:
    """The ticks of a topology, for any thread."""

    def __init__(self) -> None:
        self._ticks: tuple[Keeper, tick.Explain | None] | None = None

    def tick(self, core: Core) -> Operation[Ticked]:
        """Rotates the due shards, as soon as what waits is kept, and drains the expired trees.

        It keeps for a second at most: where more waits, the shards rotate in a later call.
        """
        if self._ticks is None:
            additions = hooks()
            self._ticks = Keeper(additions.before_rotation), additions.explain
        keeper, explain = self._ticks
        rotations = yield from keeper.piece(core)
        return (yield from tick.tick(core, expected=rotations, explain=explain))


def hooks() -> Hooks:
    """Additions of streams and functions to a tick; nothing where there is no pyarrow to read them with."""
    try:
        from acker.inspect.operate.ticker_hooks import HOOKS
    except ImportError:
        return Hooks()
    return HOOKS
