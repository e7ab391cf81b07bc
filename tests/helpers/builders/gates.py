"""Gates for schedules: answers of `acker complete` for the topology `t`, and times."""

from acker.inspect.locate.completion import Completion, completion
from acker.inspect.operate.ticker_hooks import HOOKS
from acker.ledger.client import Ledger
from acker.ledger.tick.tick import tick
from acker.store import keys
from acker.store.operation import Request
from acker.store.replies import milliseconds


def look(ledger: Ledger, before: float) -> Completion:
    """The answer of `acker complete` for a time."""
    return ledger.run(completion(ledger.core, before))


def mark(ledger: Ledger) -> float:
    """A time by the server's clock: what was tracked before the call is before it, what comes is not."""
    at = now(ledger) + 1
    while now(ledger) < at:
        pass
    return at / 1000


def begin(ledger: Ledger) -> None:
    """Has a ticker look: from here on the servers are known."""
    ledger.run(tick(ledger.core, force=True))
    assert HOOKS.before_rotation is not None
    ledger.run(HOOKS.before_rotation(ledger.core))


def now(ledger: Ledger) -> int:
    """The time of the server, in ms."""
    [instant] = ledger.store.send([Request(keys.config("t"), ["TIME"])])
    return milliseconds(instant)
