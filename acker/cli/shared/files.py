"""Files that commands write."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from acker.errors import ValidationError


@contextmanager
def opened(output: str) -> Iterator[IO[str]]:
    """The file that --output names, for writing; - is stdout. Raises ValidationError."""
    if output == "-":
        yield sys.stdout
        return
    try:
        file = Path(output).open("w", encoding="utf-8")  # noqa: SIM115 - what the block raises is not about it
    except OSError as error:
        raise ValidationError(f"--output: {output!r} cannot be written: {error.strerror}") from error
    with file:
        yield file
