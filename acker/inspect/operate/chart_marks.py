"""Marks on the charts of a topology: a deploy, a change elsewhere, anything that explains a bend of a line.

A mark is an entry of the topology's activity. It has nothing to do with the marks of steps in slabs
(`acker.ledger.calls.marks`).
"""

from acker.errors import UnknownTopology, ValidationError, shown
from acker.inspect.operate import activity
from acker.inspect.operate.activity import Activity, Noting, Via
from acker.ledger.calls import idempotency_keys
from acker.ledger.calls.core import Core
from acker.ledger.settings.config import check_text
from acker.store.operation import Operation

LONGEST = 200
"""Most characters of a mark."""


def mark(
    core: Core, text: str, *, who: str, proved: bool, via: Via, key: str | None = None
) -> Operation[Activity]:
    """Sets a mark at the present time, by the store's clock; returns its entry of the activity.

    Args:
        core: The topology.
        text: 1 to 200 characters, and not blanks alone: "deploy 1.4.2".
        who: The author: a token's name, an address, or user and host.
        proved: True where a token says so.
        via: The face.
        key: An idempotency key: within an hour, a further call under it sets no further mark.

    Raises:
        ValidationError: For another text.
        KeyConflict: If the key was used for another call.
        UnknownTopology: If the topology is gone.
        StoreError: If it cannot be kept.
    """
    check_text(text, "text")
    if not text.strip() or len(text) > LONGEST:
        raise ValidationError(f"text: expected 1 to {LONGEST} characters, got {shown(text)}")
    name = core.config.name
    record = []
    if key is not None:
        record = [(yield from idempotency_keys.take(core, key, f"mark {who} {text}")).record]
    noted = Noting(who, proved, via, "mark", {}, reason=text)
    entry = yield from activity.add(core, noted, record)
    if not entry:
        raise UnknownTopology(f"the store holds no topology {name!r}")
    at = int(entry.partition("-")[0]) / 1000
    return Activity(entry, at, at, who, proved, via, "mark", {}, None, 1, text, "", True)
