"""Dead letters of a spout go to a sink of the user's as well: `track(..., dead_letters_to=...)`.

A thread of the driver that tracks the spout writes them, as long as its session lives. See
`acker.streams.dead_letters.sending`.
"""

import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from acker.errors import AckerError
from acker.ledger.client import Ledger
from acker.ledger.fields import json_text, plain
from acker.spark.external.sinks import Sink
from acker.spark.external.table_writers import writer_of
from acker.spark.source.rereading import SessionStop, run_until_exit, see_added_jars
from acker.streams.dead_letters.sending import LetterSender, SentLetter

COLUMNS = (
    "id string, topology string, spout string, message_id binary, status string, reason string, "
    "step string, batch bigint, attempts int, at timestamp, row string, history string"
)
"""The columns of letters for a sink: of types that any format and database has.

row: JSON, null if the row is left out. history: a JSON array of the attempts."""
KAFKA = "key binary, value string, headers array<struct<key string, value binary>>"
HEADERS = ("id", "topology", "spout", "status", "reason", "step", "batch", "attempts", "at")
"""Facts of a letter that a record of Kafka has as the headers `acker-id`, `acker-topology`, and so on."""


class SparkSend:
    """Writes letters to a sink, as a function of `LetterSender`.

    Args:
        spark: The session.
        topology: The name of the topology.
        sink: The sink.
    """

    def __init__(self, spark: SparkSession, topology: str, sink: Sink) -> None:
        self.spark = spark
        self.topology = topology
        self.sink = sink

    def __call__(self, letters: Sequence[SentLetter]) -> None:
        """Writes letters. Raises AckerError if the sink has written nothing, and what it raises."""
        see_added_jars(self.spark)
        writer = writer_of(self.sink, lambda known: self._rows(letters, known.source))
        self.sink.function(writer)
        if not writer.done:
            raise AckerError(f"dead_letters_to: expected one write of its writer, got none of {len(letters)}")

    def _rows(self, letters: Sequence[SentLetter], source: str) -> DataFrame:
        """Letters as rows for a format."""
        facts = [self._facts(letter) for letter in letters]
        if source == "kafka":
            records = [
                (
                    letter.message_id,
                    _row(letter),
                    [(f"acker-{name}", text.encode()) for name, text in each.items()],
                )
                for letter, each in zip(letters, facts, strict=True)
            ]
            return self.spark.createDataFrame(records, KAFKA).coalesce(1)
        rows = [
            (letter.id, self.topology, letter.spout, letter.message_id, letter.status,
             letter.reason.replace("\0", "\N{REPLACEMENT CHARACTER}"),  # PostgreSQL takes none in a text
             letter.step, _batch(letter.batch), letter.attempts, _instant(letter.at), _row(letter),
             json_text(letter.history))
            for letter in letters
        ]  # fmt: skip
        return self.spark.createDataFrame(rows, COLUMNS).coalesce(1)

    def _facts(self, letter: SentLetter) -> dict[str, str]:
        """Facts of a letter as text."""
        texts = {name: str(getattr(letter, name, "")) for name in HEADERS}
        if _batch(letter.batch) is None:
            del texts["batch"]
        return texts | {"topology": self.topology, "at": _instant(letter.at).isoformat()}


def _row(letter: SentLetter) -> str | None:
    return None if letter.row is None else json.dumps(plain(letter.row))


def _batch(number: int) -> int | None:
    """The batch of an outcome; None where a step without batches had the row."""
    return None if number < 0 else number


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def start(spark: SparkSession, ledger: Ledger, spout: str, sink: Sink) -> None:
    """Sends the dead letters of a spout in a thread, and earlier ones first.

    A spout has one thread in a process: a later call gives it another sink. The thread ends with the session,
    and with the process.
    """
    key = ledger.store.url, ledger.config.name, spout
    send = SparkSend(spark, ledger.config.name, sink)
    with _lock:
        running = _running.get(key)
        if running is not None and not _stop_of(running).is_set():
            running.send = send
            return
        sender = _running[key] = LetterSender(ledger, spout, send)
        run_until_exit(partial(_run, key, sender), _stop_of(sender), f"acker sends dead letters of {spout}")


def _run(key: tuple[str, str, str], sender: LetterSender, stop: threading.Event) -> None:
    sender.run(stop)
    with _lock:
        if _running.get(key) is sender:
            del _running[key]


def _stop_of(sender: LetterSender) -> SessionStop:
    def session() -> SparkSession:
        assert isinstance(sender.send, SparkSend)
        return sender.send.spark

    return SessionStop(session, lambda: sender.removed)


_lock = threading.Lock()
_running: dict[tuple[str, str, str], LetterSender] = {}
