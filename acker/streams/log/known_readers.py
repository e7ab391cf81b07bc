"""The subscriptions of a stream that a process has written for: a store that lost them gets them back.

A store that was emptied gives a subscription back when its readers ask for it. What is written before that
would be for those alone who asked first, and acked without the others. A writer that knows of several makes
them anew first. The record of a stream's subscriptions has a number, its life: another record has another.
"""

from dataclasses import dataclass

from acker.ledger.calls.core import Core
from acker.store.operation import Operation, command

MOST = 1_024
"""Streams that a process remembers."""


@dataclass(frozen=True, slots=True)
class _Readers:
    life: bytes | None
    slots: bytes
    names: tuple[str, ...]


def before(core: Core, stream: str, life: bytes | None) -> tuple[str, ...]:
    """The subscriptions that the stream had in another life, in their order; none where it has this one."""
    known = core.read_by.get(stream)
    return known.names if isinstance(known, _Readers) and known.life != life else ()


def note(core: Core, stream: str, key: bytes, life: bytes | None, slots: bytes | None) -> Operation[None]:
    """Notes the subscriptions that the stream has, where there are several: one is nobody's rival."""
    if not slots or b"," not in slots:
        core.read_by.pop(stream, None)
        return
    known = core.read_by.get(stream)
    if isinstance(known, _Readers) and (known.life, known.slots) == (life, slots):
        return
    [found] = yield [command("HMGET", key, *(b"slot:" + slot for slot in slots.split(b",")))]
    if len(core.read_by) >= MOST:
        core.read_by.clear()
    core.read_by[stream] = _Readers(
        life, slots, tuple(name.decode("utf-8", "replace") for name in found if name is not None)
    )
