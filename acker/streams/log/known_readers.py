"""The subscriptions of a stream that a process has written for: a store that lost them gets them back.

A store that was emptied gives a subscription back when its readers ask for it. Rows that are written before
that would be for the first subscriptions alone, and be acked without the others. So a writer that knows of
several makes them anew first. The record of a stream's subscriptions has a number, its epoch: another record
has another.
"""

from dataclasses import dataclass

from acker.ledger.calls.core import Core
from acker.store.operation import Operation, command

MOST = 1_024
"""Streams that a process remembers."""


@dataclass(frozen=True, slots=True)
class _Readers:
    epoch: bytes | None
    slots: bytes
    names: tuple[str, ...]


def before(core: Core, stream: str, epoch: bytes | None) -> tuple[str, ...]:
    """The subscriptions that the stream had in another epoch, in their order; none in this epoch."""
    known = core.read_by.get(stream)
    return known.names if isinstance(known, _Readers) and known.epoch != epoch else ()


def note(core: Core, stream: str, key: bytes, epoch: bytes | None, slots: bytes | None) -> Operation[None]:
    """Remembers the subscriptions of a stream if there are several: a single one has no rival."""
    if not slots or b"," not in slots:
        core.read_by.pop(stream, None)
        return
    known = core.read_by.get(stream)
    if isinstance(known, _Readers) and (known.epoch, known.slots) == (epoch, slots):
        return
    [names] = yield [command("HMGET", key, *(b"slot:" + slot for slot in slots.split(b",")))]
    if len(core.read_by) >= MOST:
        core.read_by.clear()
    core.read_by[stream] = _Readers(
        epoch, slots, tuple(name.decode("utf-8", "replace") for name in names if name is not None)
    )
