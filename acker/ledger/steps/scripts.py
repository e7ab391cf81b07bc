"""The scripts of steps as functions (as in acker/ledger/calls/scripts.py)."""

from acker.store import keys
from acker.store.operation import Request, script


def register_step(topology: str, field: bytes, record: str, most: int) -> Request:
    """Registers a step of a topology."""
    return script("register_step", [keys.steps(topology)], [field, record, most, keys.config(topology)])


def number_step(topology: str, name: str, number: int, most: int) -> Request:
    """Gives a step its number."""
    own = [keys.step_numbers(topology)]
    return script("number_step", own, [name, number, most, keys.config(topology)])
