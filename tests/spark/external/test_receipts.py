"""A receipt has each place of a stream once, with the rows that both looks had."""

import base64
from collections import Counter
from typing import Any

from acker.spark.external.look import Look
from acker.spark.external.receiving import Received, receipts_of
from acker.streams.staging.external import bits
from acker.streams.staging.external.declaring import External

TOKEN = "ab" * 14
PLACE = (TOKEN, 0)


def received(*positions: int, sent: int = 5) -> Received:
    """Rows of a segment that a frame has, where each evaluation gives the same."""
    nothing: Any = None
    look = Look({PLACE: bits.pack(positions)}, {TOKEN: sent}, Counter(rows=len(positions), several=1))
    external = External({1: b"key"}, 1, 1.0, 1.0, 0, b"epoch")
    return Received(nothing, "items", nothing, external, 7, look, frozenset(), True)


def test_frames_of_one_stream_make_one_receipt_with_each_place_once() -> None:
    one, other = received(0, 1), received(1, 9, sent=8)
    one.fails = {PLACE: {1: ((3,), b"odd"), 5: ((5,), b"not received")}}
    other.fails = {PLACE: {9: ((7,), b"worse")}}
    [receipt] = receipts_of([one, other])
    [(token, shard, bitmap, fails)] = receipt.worked
    assert (token, shard, bits.unpack(base64.b64decode(bitmap))) == (*PLACE, [0, 1, 9])
    assert fails == ((1, (3,), "odd"), (9, (7,), "worse"))
    assert (receipt.newest, receipt.counted) == (8, {"rows": 4, "over": 0})
