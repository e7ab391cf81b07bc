"""Dead letters of spouts as a DataFrame; and their replay and deletion.

Terms: a tree is all that comes of one record.
"""

import json
import logging
from dataclasses import astuple, fields
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acker.errors import SpoutPendingFull, ValidationError
from acker.ledger.fields import plain
from acker.ledger.settings.config import check_name
from acker.ledger.settings.suggestions import meant
from acker.spark.options.options import OPTIONS, ledger_of, texts
from acker.spark.source.acker_source import register
from acker.store import keys
from acker.store.operation import command
from acker.streams.dead_letters import dead_letters as kept
from acker.streams.dead_letters.filters import Filter
from acker.streams.dead_letters.rounds import Rounds
from acker.streams.sources.spout_options import replays_stream

_log = logging.getLogger(__name__)
_FILTERS = [one.name for one in fields(Filter)]

DEAD_LETTERS = (
    "id string, spout string, message_id binary, anchor bigint, status string, reason string, step string, "
    "batch bigint, attempts int, at timestamp, stream string, row string, "
    "history array<struct<number int, status string, reason string, step string, batch bigint, at timestamp>>"
)
"""The columns of dead letters (`acker.streams.dead_letters.dead_letters.DeadLetter`); row: JSON."""


def dead_letters(
    spark: SparkSession,
    *,
    url: str,
    topology: str,
    spout: str | None = None,
    stream: str | None = None,
    status: str | None = None,
    step: str | None = None,
    reason: str = "",
    cause: str | None = None,
    older_than: float | None = None,
    newer_than: float | None = None,
    streaming: bool = False,
    **settings: object,
) -> DataFrame:
    """Returns the present dead letters of a spout, or of all; or the letters of a spout as a stream.

    Args:
        spark: The session.
        url: The store.
        topology: The name of the topology.
        spout: The name of the spout; by default all spouts. A stream of letters needs it.
        stream: With streaming=True: the stream of the letters' replays. By default the stream of `track`, if
            the spout has one, otherwise the stream of the spout's name.
        status: A filter; see `acker.streams.dead_letters.filters.Filter`.
        step: A filter.
        reason: A filter.
        cause: A filter.
        older_than: A filter, in seconds.
        newer_than: A filter, in seconds.
        streaming: True reads the letters of a spout as they arrive, each once for a query.
        **settings: Options of the data source for reading.

    Returns:
        A DataFrame of letters. `row` holds the row's columns as JSON; with streaming=True, as a struct.

    Raises:
        ValidationError: An argument is invalid.
        UnknownStream: The stream of the replays was never written.
    """
    for name in settings.keys() - OPTIONS.keys():
        if near := meant(name, _FILTERS):
            raise ValidationError(f"dead_letters: unknown option {name!r}{near}")
    if streaming:
        if (status, step, reason, cause, older_than, newer_than) != (None, None, "", None, None, None):
            raise ValidationError("dead_letters: with streaming=True, filter the DataFrame that is returned")
        return _dead_letters(spark, url, topology, spout, stream, settings)
    if stream is not None:
        raise ValidationError("dead_letters: stream goes with streaming=True")
    asked = Filter(spout, status, step, reason, cause, None, older_than, newer_than)
    ledger = ledger_of(url, topology, settings)
    rows: list[tuple[object, ...]] = []
    cursor = None
    while True:
        page = ledger.run(kept.page(ledger.core, asked, limit=kept.PAGE, cursor=cursor))
        for letter in page.letters:
            row = json.dumps(plain(letter.row))
            tried = [(*astuple(each)[:-1], _instant(each.at)) for each in letter.history]
            rows.append(
                (letter.id, letter.spout, letter.message_id, letter.anchor, letter.status, letter.reason,
                 letter.step, letter.batch, letter.attempts, _instant(letter.at), letter.stream, row, tried)
            )  # fmt: skip
        cursor = page.cursor
        if cursor is None:
            return spark.createDataFrame(rows, DEAD_LETTERS)


def _instant(seconds: float) -> datetime:
    moment: datetime = pa.scalar(round(seconds * 1e6), pa.timestamp("us", "UTC")).as_py()
    return moment


def _dead_letters(
    spark: SparkSession,
    url: str,
    topology: str,
    spout: str | None,
    stream: str | None,
    settings: dict[str, object],
) -> DataFrame:
    if spout is None:
        raise ValidationError("dead_letters: expected a spout with streaming=True: its rows have one schema")
    ledger = ledger_of(url, topology, settings)
    if stream is None:
        own = check_name(replays_stream(spout), "spout, with .replays")
        [tracks] = ledger.store.send([command("EXISTS", keys.Stream(topology, own).schema)])
        stream = own if tracks else spout
    register(spark)
    return (
        spark.readStream.format("acker")
        .options(
            **texts(settings), url=url, topology=topology, stream=stream, spout=spout, dead_letters="true"
        )
        .load()
    )


def replay(
    *,
    url: str,
    topology: str,
    letter: str | None = None,
    matching: Filter | None = None,
    **settings: object,
) -> int:
    """Replays a dead letter by its id, or all letters that match a filter.

    A filter takes all rows that failed before the call, also rows that wait because their spout has no room
    for more dead letters. The log has the number and the reason of letters that cannot be replayed.

    Args:
        url: The store.
        topology: The name of the topology.
        letter: The id of a dead letter.
        matching: A filter.
        **settings: Options of the data source.

    Returns:
        The new anchor of the letter; with a filter, the number of replayed letters.

    Raises:
        ValidationError: Not exactly one of `letter` and `matching` is given.
        UnknownDeadLetter: There is no letter with that id.
        SpoutPendingFull: There is no room for more trees; the letters before are replayed.
        TrackRejected: There is no room for more trees; the letters before are replayed.
    """
    if (letter is None) == (matching is None):
        raise ValidationError("replay: expected letter, the id of a dead letter, or matching, a filter")
    ledger = ledger_of(url, topology, settings)
    if letter is not None:
        return ledger.run(kept.replay(ledger.core, letter))
    assert matching is not None
    count, rounds = 0, Rounds(ledger, matching, kept.replay_some)
    for done in rounds:
        assert isinstance(done, kept.Replayed)
        count += len(done.anchors)
        if done.refused:
            _log.warning("%d dead letters cannot be replayed: %s", len(done.refused), done.refused[0].why)
    if rounds.why:
        raise SpoutPendingFull(f"{count:,} dead letters were replayed, and no others can: {rounds.why}")
    return count


def discard(*, url: str, topology: str, matching: Filter, **settings: object) -> int:
    """Deletes the dead letters that match a filter, with their rows.

    Args:
        url: The store.
        topology: The name of the topology.
        matching: A filter.
        **settings: Options of the data source.

    Returns:
        The number of deleted letters.
    """
    rounds = Rounds(ledger_of(url, topology, settings), matching, kept.discard_some)
    return sum(done.count for done in rounds if isinstance(done, kept.Discarded))
