"""The size of a batch over many small segments, planned without a session."""

import pyarrow as pa

from acker.ledger.client import Ledger
from acker.spark.options.options import Options
from acker.spark.runtime.versions import spark_schema
from acker.spark.source.reading import StreamingReader
from acker.streams import Stream, StreamWriter
from acker.streams.log import schemas

SEGMENTS = 620


def test_a_batch_has_as_many_segments_as_it_may_and_no_more_rows(ledger: Ledger, valkey_url: str) -> None:
    for name in ("all", "some", "few"):
        Stream(ledger, "lines").subscribe(name)
    writer = StreamWriter(ledger, "lines")
    for _ in range(SEGMENTS):
        writer.write(pa.table({"line": ["a", "b"]}))
    schema = spark_schema(ledger.run(schemas.read(ledger.core, "lines")))

    def taken(subscription: str, **limits: int) -> int:
        given = {"url": valkey_url, "topology": "t", "stream": "lines", "subscription": subscription}
        texts = {name: str(limit) for name, limit in limits.items()}
        reader = StreamingReader(Options.parse({**given, **texts}), schema)
        start = reader.initialOffset()
        return int(reader.latestOffset(start, None)["at"])

    assert taken("all") == SEGMENTS
    assert taken("some", max_segments=610) == 610
    assert taken("few", max_rows=1100) == 500  # what is left has no room for whatever comes
