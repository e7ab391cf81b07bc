"""Dead letters of a KafkaSpout: records that had their last attempt, with the row that the topic still has.

They are dead letters as of any spout whose rows the store keeps: `acker dead-letters`, the service and the
dashboard show, replay and discard them. Their spout has a name of its own, because the settler takes all
outcomes of a spout that keeps rows.
"""

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa  # noqa: TID251 - dead letters are rows
from confluent_kafka import Message

from acker.errors import AckerError, DeadLettersFull, StoreUnavailable, ValueTooLong, text_of
from acker.kafka.failed.retries import Retry
from acker.kafka.message_ids import message_id
from acker.kafka.options import KafkaOptions
from acker.ledger.client import Ledger
from acker.ledger.settings import config
from acker.ledger.settings.config import bounded_reason
from acker.ledger.slabs.causes import Cause
from acker.store.operation import Operation
from acker.streams.commits import commit
from acker.streams.commits.contents import Commit
from acker.streams.dead_letters.dead_letters import count
from acker.streams.log import schemas
from acker.streams.sources import attempts, rereads, roots
from acker.streams.sources.attempts import Attempt
from acker.streams.sources.spout_options import MOST_ATTEMPTS, SpoutOptions, replays_stream
from acker.streams.spouts import settler
from acker.streams.staging.staging import Staging

ROWS = pa.schema(
    [
        ("message_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of a dead letter. timestamp, key, value, headers: null where its row is not kept."""
_LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_TOGETHER = 16 << 20
"""Bytes of rows after which further rows are stored by a commit of their own."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Letter:
    """A record that becomes a dead letter.

    row: a value for each column of `ROWS`. size: its bytes; 0 for a row that is not kept. number, cause: of
    its last attempt.
    """

    retry: Retry
    row: dict[str, Any]
    size: int
    number: int
    cause: str


def spout_of(name: str) -> str:
    """The spout of the dead letters of a KafkaSpout."""
    return f"{name}.failed"


def bury(
    ledger: Ledger,
    spout: str,
    records: Sequence[tuple[Retry, Message | None]],
    options: KafkaOptions,
    buried: Callable[[Retry], object],
) -> None:
    """Makes dead letters of records. A replay of one has the attempts of `options`.

    Args:
        ledger: The ledger of the topology.
        spout: The spout.
        records: The records, each with its message; None where its topic no longer has it.
        options: The options of the spout.
        buried: Called with each record that the store has taken: it must not be buried again.

    Raises:
        DeadLettersFull: There is no room, and the store has taken none.
        AckerError: The store has not taken some of them.
    """
    name, trouble = spout_of(spout), list[AckerError]()
    if (letters := ledger.run(count(ledger.core, name))) >= config.DEAD_LETTERS:
        way_out = config.WAY_OUT.format(ledger.config.name)
        raise DeadLettersFull(f"spout {name!r} has {letters:,} dead letters, its most: {way_out}")
    waiting = [_letter(retry, message) for retry, message in records]
    while waiting:
        some, waiting = _alike(waiting)
        try:
            ledger.run(_bury(ledger, spout, some, options))
        except ValueTooLong as error:
            if len(some) > 1:
                waiting += [replace(letter, size=_TOGETHER) for letter in some]  # each alone
            elif some[0].size:
                waiting.append(_without_row(some[0].retry, _not_kept(error)))
            else:
                trouble.append(error)
            continue
        except StoreUnavailable as error:  # to ask for each of the others would take as long
            trouble.append(error)
            break
        except AckerError as error:  # the others need not wait for these
            trouble.append(error)
            continue
        for letter in some:
            buried(letter.retry)
    try:
        settler.settle(ledger, name)
    except AckerError as error:  # the store has the rows: a later settle makes them letters
        _log.warning("spout %s: rows that are in the store wait to be dead letters: %s", spout, error)
    if trouble:
        raise trouble[0]


def _alike(letters: Sequence[_Letter]) -> tuple[list[_Letter], list[_Letter]]:
    """The first of some letters with others of the same attempts and cause, and the rest."""
    alike, rest, size, first = list[_Letter](), list[_Letter](), 0, letters[0]
    for letter in letters:
        same = (letter.number, letter.cause) == (first.number, first.cause)
        if same and (not alike or size + letter.size <= _TOGETHER):
            alike.append(letter)
            size += letter.size
        else:
            rest.append(letter)
    return alike, rest


def _bury(
    ledger: Ledger,
    spout: str,
    some: Sequence[_Letter],
    options: KafkaOptions,
) -> Operation[None]:
    core, name, number = ledger.core, spout_of(spout), some[0].number
    how = SpoutOptions(
        name, replays_stream(spout), "message_id", attempts=max(number, options.attempts), attempt="attempt",
        backoff=options.backoff, max_backoff=options.max_backoff,
    )  # fmt: skip
    rows = pa.Table.from_pylist([letter.row for letter in some], ROWS)
    yield from schemas.record(core, how.stream, roots.anchored_schema(rows.schema, how))
    yield from core.register_spouts({name})
    earlier = [attempts.pack(letter.retry.history[:-1]) for letter in some]
    rows = rows.append_column(attempts.COLUMN, pa.array(earlier, pa.binary()))
    staged = yield from roots.stage(core, how, Staging(how.stream), rows.to_batches())
    made = tuple(replace(one, number=number) for one in staged)
    writer = f"kafka.{secrets.token_hex(16)}"
    yield from commit.commit(core, writer, 0, Commit(inputs=made, failed=some[0].cause))
    yield from commit.forget(core, writer)


def _letter(retry: Retry, message: Message | None) -> _Letter:
    """A letter of a record: without a row where its topic has lost it, or where it cannot be a row."""
    if message is None:  # a message without a value is false
        return _without_row(retry, rereads.gone)
    row = _place(retry)
    try:
        row |= {
            "timestamp": _microseconds(message),
            "key": message.key(),
            "value": message.value(),
            "headers": _headers(message),
        }
        size = pa.Table.from_pylist([row], ROWS).nbytes
    except Exception as error:  # noqa: BLE001 - of the client or Arrow, as for a header whose key is no text
        return _without_row(retry, _not_kept(error))
    return _Letter(retry, row, size, *_end(retry))


def _without_row(retry: Retry, said: Callable[[str], str]) -> _Letter:
    """A letter whose reason `said` makes of the reason of the record's last attempt."""
    return _Letter(retry, _place(retry), 0, *_end(retry, said))


def _not_kept(error: Exception) -> Callable[[str], str]:
    why = bounded_reason(f"its row is not kept: {text_of(error)}", 300)
    return lambda reason: f"{reason}; {why}"


def _place(retry: Retry) -> dict[str, Any]:
    topic, partition = retry.partition
    name = message_id(retry.partition, retry.offset)
    return {"message_id": name, "topic": topic, "partition": partition, "offset": retry.offset}


def _end(retry: Retry, said: Callable[[str], str] = str) -> tuple[int, str]:
    """The number of a record's attempts, and the cause of its end."""
    last = retry.history[-1] if retry.history else Attempt(1, "rejected", "", "", -1, 0.0)
    reason = said(bounded_reason(last.reason or last.status, 700))
    return min(last.number, MOST_ATTEMPTS), Cause(reason, last.step, False, last.batch).text()


def _microseconds(message: Message) -> int:
    """The time of a message, within the years that a table's values have: a producer may give any number."""
    return min(max(0, message.timestamp()[1]), _LATEST) * 1000


def _headers(message: Message) -> list[dict[str, object]]:
    headers = message.headers() or []
    return [
        {"key": key, "value": value.encode() if isinstance(value, str) else value}
        for key, value in (headers.items() if isinstance(headers, dict) else headers)
    ]
