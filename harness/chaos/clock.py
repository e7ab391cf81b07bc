"""A wall clock that jumps: each Python process that installs it reads how far from a file.

`time.time` and `time.time_ns` jump, as of a machine whose clock is set; the monotonic clock does not.
"""

import mmap
import os
import struct
import sys
import time
from pathlib import Path

VARIABLE = "CHAOS_CLOCK"
"""The environment variable that names the file: eight bytes, the offset in seconds as a double."""
_DOUBLE = struct.Struct("<d")


def make(path: Path) -> None:
    """Makes the file, without offset."""
    path.write_bytes(_DOUBLE.pack(0.0))


def jump(path: Path, offset: float) -> None:
    """Sets by how many seconds the clock is wrong, for all who read it."""
    with path.open("r+b") as file:
        file.write(_DOUBLE.pack(offset))


def install() -> None:
    """Has this process's clock follow the file, where one is named."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    with Path(path).open("rb") as file:
        shared = mmap.mmap(file.fileno(), _DOUBLE.size, access=mmap.ACCESS_READ)
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + _DOUBLE.unpack_from(shared)[0]
    time.time_ns = lambda: real_ns() + int(_DOUBLE.unpack_from(shared)[0] * 1e9)


def main() -> None:
    """Runs `acker` with this clock."""
    install()
    from acker.cli import main as acker

    acker(sys.argv[1:])


if __name__ == "__main__":
    main()
