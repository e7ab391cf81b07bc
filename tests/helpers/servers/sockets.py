"""Sockets that nobody has closed: the warning of one names who had made it, in which test.

It comes when the memory is collected, mostly in another test than the one at fault.
"""

import os
import socket
import sys
import traceback
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

_KEPT = 4_000
_FRAMES = 12
_made: OrderedDict[int, tuple[str, traceback.StackSummary]] = OrderedDict()


def note_sockets() -> None:
    """Has this process remember who makes its latest sockets."""
    sys.addaudithook(_note)
    before = sys.unraisablehook

    def tell(unraisable: Any) -> None:
        if isinstance(unraisable.object, socket.socket):
            said = f"{_maker(unraisable.object)}Exception ignored in"
            parts = {name: getattr(unraisable, name) for name in ("exc_type", "exc_value", "exc_traceback")}
            unraisable = SimpleNamespace(**parts, err_msg=said, object=unraisable.object)
        before(unraisable)

    sys.unraisablehook = tell


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.__new__":
        return
    # Without its lines, which would be read from files.
    stack = traceback.StackSummary.extract(
        traceback.walk_stack(sys._getframe(1)), limit=_FRAMES, lookup_lines=False
    )
    _made[id(arguments[0])] = os.environ.get("PYTEST_CURRENT_TEST", ""), stack
    if len(_made) > _KEPT:
        _made.popitem(last=False)


def _maker(connection: socket.socket) -> str:
    found = _made.get(id(connection))
    if found is None:
        return "Nobody remembers who made it. "
    return "".join([f"Made in {found[0]}, by (latest first)\n", *found[1].format()])
