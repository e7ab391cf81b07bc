"""Rewinds a checkpoint, so that its source reads again rows that the store has lost.

A checkpoint has a file of offsets for each planned batch, and a file for each completed batch. If those files
are removed from a batch on, Spark plans anew from the end of the batch before. Files, Kafka and other sources
with offsets can be read again that way. The list of seen files stays, and belongs to the next batch.
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
    """Rewinds the checkpoint of a query that ended with StoreLost.

    All rows from that batch on are read again, also completed rows: at least once. The query must not be
    running. A checkpoint with Spark's own state (deduplication, aggregates) cannot be rewound, and rows that
    a source has deleted (`cleanSource`) are not read again.

    Args:
        checkpoint: A directory that this process can read.
        url: The store.
        topology: The name of the topology.
        batch: The first batch to read again. By default the first batch with waiting rows, which the
            checkpoint has recorded, or 0.
        **settings: Options of the data source.

    Returns:
        The first batch that is read again.

    Raises:
        ValidationError: An argument is invalid, or the checkpoint cannot be rewound. Nothing was changed.
    """
    place = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    try:
        query = str(json.loads((place / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise ValidationError(
            f"checkpoint: expected the directory of a checkpoint, got {shown(checkpoint)}"
        ) from error
    if any((place / "state").glob("*/*")):
        raise ValidationError(
            f"checkpoint {checkpoint!r} has Spark's own state, which cannot be rewound. Start the query "
            "with a new checkpoint, which reads all rows again"
        )
    planned = _batches(place / "offsets")
    if not planned:
        return 0
    first = _first(place / "offsets" / str(planned[-1]), query) if batch is None else batch
    check_number(first, "batch", 0, planned[-1] + 1, int)
    if first and first - 1 not in planned:
        raise ValidationError(
            f"batch: expected 0, or {planned[0] + 1} or more, got {first}: the checkpoint has no offsets "
            "of earlier batches. Start with batch 0, or a new checkpoint, which reads all rows again"
        )
    ledger = of_step("any", {"url": url, "topology": topology, **settings}).ledger()
    key = keys.commits(topology, query)
    # First: if this is interrupted, it can run again while the last offsets are there.
    notes = keys.external(topology, "txn", query)  # its batches have other rows: tables must not know them
    ledger.store.send([command("UNLINK", key), command("UNLINK", notes)])
    if first:
        ledger.store.send(
            [command("HSET", key, "last", first - 1, "spout", 1), command("EXPIRE", key, RECORD_TTL)]
        )
        _forget_epoch(place / "offsets" / str(first - 1))
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
    """Returns the first batch whose rows may have waited when a batch was planned."""
    found = [one["pending"].get(query, 0) for _, one in _lines(offsets) if "pending" in one]
    return min(map(int, found), default=0)


def _lines(offsets: Path) -> list[tuple[int, dict[str, Any]]]:
    """Returns the offsets of acker's sources in a file, with their line numbers."""
    offset_lines = []
    for number, line in enumerate(offsets.read_text().split("\n")):
        try:
            offset = json.loads(line)
        except ValueError:
            continue
        if isinstance(offset, dict) and "epoch" in offset and "reader" in offset:
            offset_lines.append((number, offset))
    return offset_lines


def _forget_epoch(offsets: Path) -> None:
    """Removes the epoch of the store from a file of offsets, so that the query may continue from it."""
    lines = offsets.read_text().split("\n")
    for number, offset in _lines(offsets):
        del offset["epoch"]
        lines[number] = json.dumps(offset, separators=(",", ":"))
    rewritten = offsets.with_name(f".{offsets.name}.acker")
    rewritten.write_text("\n".join(lines))
    offsets.with_name(f".{offsets.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old file
    shutil.move(rewritten, offsets)


def _remove(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    path.unlink()
