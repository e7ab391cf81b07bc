"""Objects that travel from a driver to its executors: unpacked only by the same acker."""

import hashlib
import socket
from functools import cache
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from typing import Any, Self

from pyspark import cloudpickle

from acker.errors import VersionMismatch
from acker.store import scripts

_APART = ("cli", "demo", "__pycache__")
"""Folders that executors do not run."""


class Shipped:
    """A base of classes that are pickled to executors, and unpacked only by the code that packed them."""

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        packed: bytes = cloudpickle.dumps((type(self), self.__dict__))  # type: ignore[no-untyped-call]
        return unpack, (version(), packed)

    @classmethod
    def _unpacked(cls, state: dict[str, Any]) -> Self:
        made = cls.__new__(cls)
        made.__dict__.update(state)
        return made


def unpack(driver: str, packed: bytes) -> Any:
    """Returns the packed object; raises VersionMismatch if another version of acker packed it."""
    if driver != version():
        raise VersionMismatch(
            f"the driver runs acker {driver}, this executor on {socket.gethostname()} runs acker "
            f"{version()}: give both the same wheel"
        )
    kind, state = cloudpickle.loads(packed)
    return kind._unpacked(state)


@cache
def version() -> str:
    """Returns the version of this acker with a digest of its code, as `0.1.0 (3f2a90cd)`."""
    code = hashlib.sha256()
    for name, text in sorted(_sources(resources.files("acker"), "")):
        code.update(name.encode() + b"\0" + text)
    for script in scripts.load_all().values():
        code.update(script.sha)
    try:
        number = metadata.version("acker")
    except metadata.PackageNotFoundError:
        number = "unpackaged"
    return f"{number} ({code.hexdigest()[:8]})"


def _sources(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    files = []
    for member in folder.iterdir():
        if member.is_dir() and member.name not in _APART:
            files += _sources(member, f"{path}{member.name}/")
        elif member.name.endswith(".py"):
            files.append((path + member.name, member.read_bytes()))
    return files
