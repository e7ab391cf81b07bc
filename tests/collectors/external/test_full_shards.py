"""A flush that finds one shard full goes on where it was: nothing is dropped, and nothing is acked early."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from acker import Topology
from acker.collectors.external.row import Row
from acker.errors import StreamFull
from tests.helpers.builders.collectors import Make
from tests.helpers.builders.external import source


@pytest.mark.parametrize("again", [True, False], ids=["the same call", "another process"])
def test_of_a_flush_that_finds_one_shard_full_each_part_takes_effect_once(
    make: Make, raw: Any, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    step, last = make(), make()
    items, words = step.incoming("items", subscription="count"), step.outgoing("words")
    sink = last.incoming("words", subscription="sink")
    made, by_shard, rows, headers = list[Topology](), Counter[int](), list[Row](), list[Any]()
    while not rows or by_shard[rows[0].shard] == max(by_shard.values()):  # the first one is to have room
        made.append(make())  # its records are in one shard
        headers += source(made[-1], len(made))  # not flushed: bits of them wait
        rows += items.extract_many(headers[len(rows) :])
        by_shard = Counter(row.shard for row in rows)
    texts = words.stamps(rows)
    items.ack(rows)
    room = 301 * (max(by_shard.values()) - 1)

    def waiting() -> dict[bytes, bytes]:
        return {key: raw.dump(key) for key in raw.scan_iter("*}:staged:*") if raw.hexists(key, "early")}

    with monkeypatch.context() as patch:
        patch.setattr(step.ledger.core, "config", replace(step.config, external_waiting_bytes=room))
        with pytest.raises(StreamFull, match="a part of the flush may have taken effect"):
            step.flush()
        taken = waiting()
        assert 0 < len(taken) < len(rows)
        with pytest.raises(StreamFull):
            step.flush()
        assert waiting().keys() == taken.keys()
    for source_ in made:
        source_.flush()
    sink.ack(sink.read(texts))
    last.flush()
    assert step.counters()["acked"] == len(taken), "of what was refused nothing is acked"
    if not again:  # the process ended at the error: its offsets are not committed, and the rows come again
        step = make()
        items, words = step.incoming("items", subscription="count"), step.outgoing("words")
        rows = list(items.extract_many(headers))
        sink.ack(sink.read(words.stamps(rows)))
        items.ack(rows)
    step.flush()
    last.flush()
    assert (step.counters()["acked"], step.counters()["late"]) == (len(headers), 0)
