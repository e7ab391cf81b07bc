"""Segments and kept rows that cannot be read: put away and counted, once, while all else goes on.

No tuple of such a segment is acked any more, so its trees expire, and their spouts replay them. Rows that a
spout keeps are the last there is of them: they stay, too, as what is not done (kept.py).
"""

import logging

from acker.errors import UnreadableRecord
from acker.ledger.core import Core
from acker.ledger.submissions import Call
from acker.store.operation import Operation
from acker.streams.segments import Segment

UNREAD = Segment("", 0, 0, 0, (), ())
"""Stands for a segment whose record cannot be read: it has no rows, no vectors, and is owed to nobody."""
_BYTES = 16384
_log = logging.getLogger(__name__)


def parse(record: bytes) -> Segment:
    """A segment; `UNREAD` where the record is of none."""
    try:
        return Segment.parse(record)
    except UnreadableRecord:
        return UNREAD


def put_away(core: Core, stream: str, name: str, record: bytes) -> Operation[None]:
    """Puts what there is of a segment into the quarantine of a shard, under its token or its entry's id.

    The same again changes nothing. A topology without shards has no quarantine: there it is logged only.
    """
    yield from _put_away(core, f"segment:{stream}:{name}", record, f"segment {name} of stream {stream}")


def put_away_rows(core: Core, spout: str, token: str, record: bytes) -> Operation[None]:
    """Puts kept rows of a spout into the quarantine of a shard; the same again changes nothing."""
    yield from _put_away(core, f"rows:{spout}:{token}", record, f"rows {token} that spout {spout} keeps")


def _put_away(core: Core, name: str, record: bytes, what: str) -> Operation[None]:
    new: list[int] = [1]
    if core.shards:
        args: list[bytes | str | int] = [name, record[:_BYTES]]
        new = yield from core.ask([Call(0, "quarantine_segment", [core.shards[0].quarantine], args)])
    if new[0]:
        _log.error("%s: %s cannot be read", core.config.name, what)
