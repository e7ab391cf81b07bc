"""The demo's temporary directory, and what demos that were killed have left of theirs."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acker.demo.children import ChildFailed

_PREFIX = "acker-demo-"
_LOCK, _NEW_LOCK = "lock", "lock.new"


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A temporary directory, of which only the logs are kept, and only when a process has failed.

    Its lock is held for as long. Directories of this user whose lock nobody holds any more are removed first.
    """
    _tidy()
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with (directory / _NEW_LOCK).open("xb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Held before it has its name: no other demo can take it for one that was left behind.
        (directory / _NEW_LOCK).rename(directory / _LOCK)
        try:
            yield directory
        except ChildFailed:
            for entry in directory.iterdir():
                if entry.name != "logs":
                    shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(
                        missing_ok=True
                    )
            raise
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        shutil.rmtree(directory, ignore_errors=True)


def _tidy() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            if lock.parent.lstat().st_uid != os.getuid():
                continue
            with lock.open("rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
