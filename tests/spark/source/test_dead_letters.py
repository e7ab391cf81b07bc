"""Dead letters as rows: each once for a query, with the columns that the row has."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from acker.errors import ValidationError
from acker.spark import dead_letters
from acker.spark.runtime.versions import LEARNS_OFFSETS
from acker.streams.dead_letters import dead_letters as letters
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.spout import StreamSpout
from acker.streams.spouts import settler
from tests.helpers.builders.pipeline import Pipeline
from tests.helpers.servers.sparks import several_batches

pytestmark = pytest.mark.slow


def bury(pipeline: Pipeline, *names: str, stream: str = "prices") -> None:
    """Makes dead letters of rows of a spout; `status` is a column of theirs, too."""
    spout = StreamSpout(pipeline.ledger, SpoutOptions("shop", stream, "name", attempts=1))
    size = len(names)
    tags = pa.array([[name[0]] for name in names])
    [made] = spout.write(pa.table({"name": list(names), "status": [7] * size, "tags": tags}))
    pipeline.ledger.fail(made.anchors(), "not sold here")
    assert settler.settle(pipeline.ledger).dead == size


def run(pipeline: Pipeline, name: str) -> list[str]:
    """Runs a query over what there is; the names that it has written so far."""
    found = dead_letters(
        pipeline.spark, url=pipeline.url, topology="t", spout="shop", streaming=True, **LIMITS
    )
    reported = found.selectExpr("row.*", "message_id", "status as how", "reason", "attempts", "at", "id")
    pipeline.finish(pipeline.writing(name, reported, f"seen.{name}"))
    return sorted(str(row["name"]) for row in pipeline.rows(f"seen.{name}"))


LIMITS: dict[str, Any] = {"stream": "prices", "max_rows": 3}


def batches(directory: Path) -> list[int]:
    return sorted(int(path.name) for path in (directory / "commits").glob("[0-9]*"))


@pytest.mark.connect(only=False)
def test_a_query_has_each_dead_letter_once_with_the_columns_of_its_row(pipeline: Pipeline) -> None:
    first = [f"a{n}" for n in range(8)]
    bury(pipeline, *first)
    assert run(pipeline, "one") == first
    [row] = [row for row in pipeline.rows("seen.one") if row["name"] == "a3"]
    assert (row["status"], row["tags"], row["message_id"]) == (7, ["a"], b"a3")
    assert (row["how"], row["reason"], row["attempts"]) == ("failed", "not sold here", 1)
    assert batches(pipeline.directory / "one") == ([0, 1, 2] if LEARNS_OFFSETS else [0])
    assert run(pipeline, "one") == first


@several_batches
def test_a_query_that_goes_on_has_what_is_new_and_not_what_is_gone(pipeline: Pipeline) -> None:
    first = [f"a{n}" for n in range(8)]
    bury(pipeline, *first)
    assert run(pipeline, "one") == first
    # The last batch once more, as after a driver that died before Spark had logged its end.
    last = batches(pipeline.directory / "one")[-1]
    for name in (str(last), f".{last}.crc"):
        (pipeline.directory / "one" / "commits" / name).unlink(missing_ok=True)
    bury(pipeline, "b0", "b1", "b2")
    bury(pipeline, "another", stream="others")
    page = pipeline.ledger.run(letters.page(pipeline.ledger.core))
    gone = {letter.row["name"]: letter.id for letter in page.letters}
    pipeline.ledger.run(letters.discard(pipeline.ledger.core, [gone["b1"]]))
    pipeline.ledger.run(letters.replay(pipeline.ledger.core, gone["a0"]))
    assert run(pipeline, "one") == [*first, "b0", "b2"]
    assert run(pipeline, "two") == [*first[1:], "b0", "b2"]


def test_a_reader_may_name_columns_and_a_wrong_one_is_refused(pipeline: Pipeline) -> None:
    bury(pipeline, "a", "b")
    options = pipeline.options("prices", spout="shop", dead_letters="true")

    def read(schema: str) -> list[Any]:
        found = pipeline.spark.read.format("acker").schema(schema).options(**options).load()
        return sorted(tuple(row) for row in found.collect())

    assert read("reason string, row struct<name: string>") == [
        ("not sold here", ("a",)), ("not sold here", ("b",)),
    ]  # fmt: skip
    assert read("attempts int") == [(1,), (1,)]
    with pytest.raises(Exception, match="and the struct row, not name string"):
        read("name string")
    with pytest.raises(Exception, match="name: expected string, got int32"):
        read("row struct<name: int>")
    writer = pipeline.spark.range(1).write.format("acker").mode("append")
    with pytest.raises(Exception, match="option dead_letters: only for reading"):
        writer.options(**pipeline.options("prices", dead_letters="true")).save()
    with pytest.raises(ValidationError, match="expected a spout with streaming=True"):
        dead_letters(pipeline.spark, url=pipeline.url, topology="t", streaming=True)
    with pytest.raises(ValidationError, match="stream goes with streaming=True"):
        dead_letters(pipeline.spark, url=pipeline.url, topology="t", stream="prices")
