"""Stamping rows for a client. Nothing is stored: the client hands the stamps back with its commit.

Terms: a tree is all that comes of one record; a segment is the rows of an external stream that one sender
stamped together; a slot is the random number of a subscription.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from acker.collectors.external.outgoing import SEGMENT_ROWS
from acker.collectors.external.remote import sealed
from acker.collectors.external.remote.rows import seal_of
from acker.errors import ValidationError, shown
from acker.ledger.calls.core import Core
from acker.store.operation import Operation
from acker.streams.staging.external import declaring
from acker.streams.staging.external.declaring import External
from acker.streams.staging.external.rows.stamps import MOST_ANCHORS, Seal, Stamp
from acker.streams.staging.external.segments import MOST_TREES, Sent


@dataclass(frozen=True, slots=True)
class Stamped:
    """The stamps of rows, and the subscriptions that the stream has now, as names by slot."""

    stamps: list[str | None]
    subscriptions: dict[int, str]


def stamp(
    core: Core, stream: str, rows: Sequence[Sequence[int]], commit: str, segment_rows: int = SEGMENT_ROWS
) -> Operation[Stamped]:
    """Stamps rows that one commit is to send.

    Args:
        core: The topology.
        stream: The stream that the rows go to; it becomes external by its first use.
        rows: The trees of each row; a row without trees has no stamp.
        commit: The idempotency key of the commit: no other commit can send these rows.
        segment_rows: Rows of a segment at most.

    Raises:
        ValidationError: A row has more than 255 trees, or an anchor that is none.
        StreamKindError: The stream is managed.
    """
    external = yield from declaring.declare(core, stream)
    seal, key = seal_of(core, stream, external), external.stamp_keys[external.number]
    stamps, sent = list[str | None](), external.now // 1000
    token, position, trees = "", 0, set[int]()
    for row in rows:
        anchors = tuple(dict.fromkeys(row))
        if len(anchors) > MOST_ANCHORS:
            raise ValidationError(f"a row belongs to at most {MOST_ANCHORS} trees, got {len(anchors):,}")
        if not all(anchor & 1 for anchor in anchors):
            even = next(anchor for anchor in anchors if not anchor & 1)
            raise ValidationError(f"anchor: expected an odd number, got {shown(even)}")
        if not anchors or not core.config.ackers:
            stamps.append(None)
            continue
        if not token or position >= segment_rows or len(trees) + len(anchors) > MOST_TREES:
            token, position, trees = sealed.new_token(key, commit), 0, set()
        stamps.append(seal.write(Stamp(token, position, sent, anchors)))
        trees.update(anchors)
        position += 1
    return Stamped(stamps, external.seen)


def sent_segments(
    stream: str, seal: Seal, external: External, commit: str, stamps: Iterable[str | None]
) -> list[Sent]:
    """The segments of the stamps that a commit sends. Stamps that it leaves out are of rows without effect.

    Raises:
        ValidationError: A stamp is damaged, was given for another commit, or comes twice.
        StreamLost: A stamp is foreign.
    """
    rows = dict[str, dict[int, Stamp]]()
    for text, decoded in zip(given := [text for text in stamps if text], seal.read_many(given), strict=True):
        if decoded == "foreign":
            raise sealed.foreign(stream, "a stamp")
        if not isinstance(decoded, Stamp):
            raise ValidationError(
                f"stream {stream!r}, sent: expected stamps of this service, got {shown(text)}"
            )
        of_segment = rows.setdefault(decoded.token, {})
        if decoded.position in of_segment:
            raise ValidationError(
                f"stream {stream!r}, sent: expected each stamp once, got {shown(text)} twice"
            )
        of_segment[decoded.position] = decoded
    return [
        _segment(stream, external.stamp_keys, commit, token, by_position)
        for token, by_position in rows.items()
    ]


def _segment(
    stream: str, stamp_keys: Mapping[int, bytes], commit: str, token: str, rows: Mapping[int, Stamp]
) -> Sent:
    number = sealed.key_number(stamp_keys, commit, token)
    if number is None:
        raise ValidationError(
            f"stream {stream!r}, sent: stamps of segment {token} were given for another commit, which alone "
            "can send their rows: nothing was sent"
        )
    last = max(rows)
    sent = Sent(token, sealed.seed_of(stamp_keys[number], token), rows[last].sent, key=number)
    for position in range(last + 1):
        sent.add(rows[position].anchors if position in rows else ())
    return sent
