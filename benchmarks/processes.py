"""The use of this process and its descendants, by Linux's /proc: Spark's JVMs, Python workers, the store."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PARENT, _TIMES, _RESIDENT = 1, slice(11, 15), 21
"""Places after the name in /proc/PID/stat: parent; user and system time, also of children that have ended."""


def _processes() -> dict[int, list[int]]:
    """Process id -> its numbers, of this process and its descendants."""
    every: dict[int, list[int]] = {}
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "stat").read_text()
        except OSError:
            continue  # has ended meanwhile
        # The state, the only letter, comes first; the name before it may be of anything.
        numbers = [0, *map(int, text.rpartition(") ")[2].split()[1:])]
        every[int(place.name)] = numbers
        children.setdefault(numbers[_PARENT], []).append(int(place.name))
    found, todo = {}, [os.getpid()]
    while todo:
        one = todo.pop()
        if one in every:
            found[one] = every[one]
        todo += children.get(one, [])
    return found


def cpu_seconds() -> float:
    """Processor time of all of them so far; other load on the machine hardly changes what is measured so."""
    return sum(sum(numbers[_TIMES]) for numbers in _processes().values()) / _TICKS


def resident_bytes(process: int) -> int:
    """Memory of this process or of one of its descendants."""
    return _processes()[process][_RESIDENT] * _PAGE
