"""The text that the demo works on: files, their lines as records, and the words of a line."""

import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from acker.errors import ValidationError
from acker.ledger.settings.config import MESSAGE_ID_BYTES

WORD = "[A-Za-z]+"
"""The pattern of a word, for Python and for Spark. Words are counted in lower case."""
_WORD = re.compile(WORD)
_LOOK = 4096


class Line(NamedTuple):
    """A non-empty line of text. message_id: file and line number, as `json/decoder.py:12`."""

    message_id: str
    text: str


def words(line: str) -> list[str]:
    """The words of a line, in lower case and in their order."""
    return [word.lower() for word in _WORD.findall(line)]


def find_files(inputs: Sequence[str]) -> list[tuple[str, Path]]:
    """The files to read, each with the name that message ids call it by.

    inputs: files, and directories whose text files are taken (not hidden ones, not binary ones). None: every
    `.py` file of the running Python's standard library. Raises ValidationError where nothing is to be read.
    """
    files = list(_named(inputs) if inputs else _standard_library())
    if not files:
        raise ValidationError(f"no text in {', '.join(inputs) or 'the standard library'}")
    return list(dict(files).items())


def _standard_library() -> Iterator[tuple[str, Path]]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if "site-packages" not in name.parts and path.is_file():
            yield str(name), path


def _named(inputs: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for given in inputs:
        root = Path(given)
        if root.is_dir():
            for path in sorted(root.rglob("*")):
                hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
                if not hidden and path.is_file() and _is_text(path):
                    yield str(path), path
        elif root.is_file():
            yield str(root), root
        else:
            raise ValidationError(f"--input: no file or directory {given!r}")


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"\0" not in file.read(_LOOK)
    except OSError:
        return False


def read_lines(files: Iterable[tuple[str, Path]], most: int = 0) -> Iterator[Line]:
    """The non-empty lines of files, `most` of them (0: all). Bytes that are no UTF-8 are replaced.

    Raises ValidationError for a file whose name is too long for a message id, or that can't be read.
    """
    lines = (line for name, path in files for line in _file_lines(name, path))
    return islice(lines, most) if most else lines


def _file_lines(name: str, path: Path) -> Iterator[Line]:
    # A file name is bytes to the system; a message id must be text to travel as one.
    name = name.encode("utf-8", "replace").decode()
    if len(name.encode()) > MESSAGE_ID_BYTES - 12:
        raise ValidationError(f"the name {name[:64]!r}... is too long for a message id")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, text in enumerate(file, 1):
                if (text := text.rstrip("\n")) and not text.isspace():
                    yield Line(f"{name}:{number}", text)
    except OSError as error:
        raise ValidationError(f"{path} can't be read: {error.strerror}") from error
