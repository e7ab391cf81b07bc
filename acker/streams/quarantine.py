"""Segments that can not be read: put away and counted, once, while those who consume their stream go on.

No tuple of such a segment is acked any more, so its trees expire, and their spouts replay them.
"""

import logging

from acker.errors import UnreadableRecord
from acker.operations import Core
from acker.requests import Operation
from acker.streams.segments import Segment
from acker.submissions import Call

UNREAD = Segment("", 0, 0, 0, (), ())
"""Stands for a segment whose record can not be read: it has no rows, no vectors, and is owed to nobody."""
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
    new: list[int] = [1]
    if core.shards:
        args: list[bytes | str | int] = [f"segment:{stream}:{name}", record[:_BYTES]]
        new = yield from core.ask([Call(0, "quarantine_segment", [core.shards[0].quarantine], args)])
    if new[0]:
        _log.error("%s: segment %s of stream %s can not be read", core.config.name, name, stream)
