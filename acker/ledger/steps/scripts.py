"""The scripts of steps as functions (as in acker/ledger/calls/scripts.py)."""

from acker.store import keys
from acker.store.operation import Request, Word, script


def register_step(topology: str, field: bytes, record: str, most: int, seen: bytes) -> Request:
    """Registers a step of a topology. seen: the removals of the topology, as in all scripts here."""
    args: list[Word] = [field, record, most, keys.config(topology), keys.removals(topology), seen]
    return script("register_step", [keys.steps(topology)], args)


def number_step(topology: str, name: str, number: int, most: int, seen: bytes) -> Request:
    """Gives a step its number."""
    args: list[Word] = [name, number, most, keys.config(topology), keys.removals(topology), seen]
    return script("number_step", [keys.step_numbers(topology)], args)


def note_held(
    topology: str, process: str, number: int, record: bytes, most: int, life: int, seen: bytes
) -> Request:
    """Notes the tuples that a process has held for long. number: of its note. life: of the key, in ms."""
    args: list[Word] = [process, number, record, most, life]
    args += [keys.removals(topology), seen, keys.config(topology)]
    return script("note_held", [keys.steps(topology, "held")], args)
