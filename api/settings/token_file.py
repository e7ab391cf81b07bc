"""Accepted tokens: tokens of the environment, and of a file that is read again when it changes."""

import logging
import time
from pathlib import Path

from api.settings.tokens import Token, Tokens

_MOST_BYTES = 1 << 20
_LOOK_SECONDS = 1.0
"""Seconds between two looks at the file."""

_log = logging.getLogger(__name__)


def read(path: str) -> Tokens:
    """The tokens of a file, one or more a line; what follows a # is a comment.

    Raises ValueError for a file that cannot be read, has over 1 MiB, or holds no token or a malformed one.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"expected at most {_MOST_BYTES:,} bytes")
        lines = content.decode().splitlines()
    except (OSError, ValueError) as error:
        raise ValueError(f"the file {path!r} cannot be read: {error}") from None
    tokens = Tokens.parse(" ".join(line.partition("#")[0] for line in lines))
    if not tokens:
        raise ValueError(f"the file {path!r} holds no token")
    return tokens


class Accepted:
    """The accepted tokens of a service.

    The file is looked at once a second at most. If it cannot be read any more, or holds no token or a
    malformed one, its former tokens stay, and the log says why, once for each change of the file.

    Args:
        given: Tokens of the environment.
        path: The file, or "". Raises ValueError if it cannot be read.
    """

    def __init__(self, given: Tokens, path: str) -> None:
        self._given = given
        self._path = path if Path(path).is_file() else ""  # a pipe is read once
        self._version = _version(path)
        self._looked = time.monotonic()
        self._tokens = self._with(read(path)) if path else given

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def find(self, presented: str) -> Token | None:
        """The token presented, if it is known, as `Tokens.find` gives it."""
        if self._path and time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
        return self._tokens.find(presented)

    def _look(self) -> None:
        self._looked = time.monotonic()
        version = _version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            if Path(self._path).exists() and not Path(self._path).is_file():
                raise ValueError(f"{self._path!r} is no file")  # a pipe would hold up the service
            self._tokens = self._with(read(self._path))
        except ValueError as error:
            _log.error("the tokens of before stay accepted: %s", error)
        else:
            _log.info("read the file of tokens again: %d tokens are accepted", len(self._tokens.accepted))

    def _with(self, tokens: Tokens) -> Tokens:
        return Tokens([*self._given.accepted, *tokens.accepted])


def _version(path: str) -> tuple[int, ...]:
    """The version of a file: it differs after each change or replacement; empty where there is none."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return ()
    return status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns, status.st_ctime_ns
