"""Reading batches again: a checkpoint is set back, so that its source gives again what the store has lost.

A checkpoint has one file of offsets for each batch that was planned, and one for each that was done. Without
those from a batch on, Spark plans anew from the end of the batch before: files, Kafka and whatever else can
be read from an offset again. What files were seen stays known, and belongs to the next batch.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from acker.errors import ValidationError, shown
from acker.ledger.settings.settings import check_number
from acker.spark.options.options import of_step
from acker.store import keys
from acker.store.operation import command
from acker.streams.commits.record import RECORD_TTL


def read_again(
    checkpoint: str, *, url: str, topology: str, batch: int | None = None, **settings: object
) -> int:
    """Sets the checkpoint of a query that has ended with StoreLost back; returns the first batch read again.

    batch: which one; by default the first of which rows waited, as the checkpoint has noted, or 0. All
    rows from there on come again, also rows that were done: at least once. For a query that does not run,
    with a checkpoint in a directory that this process sees. One with Spark's own state (deduplication,
    aggregates) cannot be set back, and what a source has deleted does not come again (`cleanSource`).
    settings: as of the data source. Raises ValidationError, before anything is changed.
    """
    place = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    try:
        query = str(json.loads((place / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise ValidationError(
            f"checkpoint: expected the directory of one, got {shown(checkpoint)}"
        ) from error
    if any((place / "state").glob("*/*")):
        raise ValidationError(
            f"checkpoint {checkpoint!r} has state of Spark's own, which cannot be set back: start the query "
            "with a new checkpoint, which reads all again"
        )
    planned = _batches(place / "offsets")
    if not planned:
        return 0
    first = _first(place / "offsets" / str(planned[-1]), query) if batch is None else batch
    check_number(first, "batch", 0, planned[-1] + 1, int)
    if first and first - 1 not in planned:
        raise ValidationError(
            f"batch: expected 0 or one from {planned[0] + 1} on, got {first}: the checkpoint has the offsets "
            "of no earlier one any more. Start with batch 0, or a new checkpoint, which reads all again"
        )
    ledger = of_step("any", {"url": url, "topology": topology, **settings}).ledger()
    key = keys.commits(topology, query)
    # First of all: what is cut here can be run again, as long as the last offsets are there.
    ledger.store.send([command("UNLINK", key)])
    if first:
        ledger.store.send(
            [command("HSET", key, "last", first - 1, "spout", 1), command("EXPIRE", key, RECORD_TTL)]
        )
        _forget_life(place / "offsets" / str(first - 1))
    for folder in ("commits", "offsets"):
        for number in _batches(place / folder):
            if number >= first and (folder, number) != ("offsets", planned[-1]):
                _remove(place / folder / str(number))
    if planned[-1] >= first:
        _remove(place / "offsets" / str(planned[-1]))
    return first


def _batches(folder: Path) -> list[int]:
    return sorted(int(one.name) for one in folder.glob("*") if one.name.isdigit())


def _first(offsets: Path, query: str) -> int:
    """The first batch of which rows may have waited when a batch was planned."""
    found = [one["pending"].get(query, 0) for _, one in _lines(offsets) if "pending" in one]
    return min(map(int, found), default=0)


def _lines(offsets: Path) -> list[tuple[int, dict[str, Any]]]:
    """The offsets of our sources in a file, with the numbers of their lines."""
    found = []
    for number, line in enumerate(offsets.read_text().split("\n")):
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict) and "life" in one and "reader" in one:
            found.append((number, one))
    return found


def _forget_life(offsets: Path) -> None:
    """Takes out of a file of offsets which life of the store it was of: it is to be gone on from."""
    lines = offsets.read_text().split("\n")
    for number, one in _lines(offsets):
        del one["life"]
        lines[number] = json.dumps(one, separators=(",", ":"))
    made = offsets.with_name(f".{offsets.name}.acker")
    made.write_text("\n".join(lines))
    offsets.with_name(f".{offsets.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of what it was
    shutil.move(made, offsets)


def _remove(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
