"""Segments at their limits."""

import numpy as np
import pyarrow as pa
import pytest

from acker import Topology
from acker.streams.log import schemas, segments
from acker.streams.log.segments import ANCHORS, SEGMENT_ROWS
from acker.streams.sources import roots
from acker.streams.sources.roots import KEPT_ROWS
from acker.streams.sources.spout_options import SpoutOptions
from acker.streams.staging import staging, vectors
from acker.streams.staging.staging import Staging
from tests.helpers.servers.servers import raw_client

pytestmark = pytest.mark.cluster(slow=True)

SCHEMA = pa.schema([("word", pa.string()), (ANCHORS, pa.int64())])


def test_a_segment_may_have_vectors_of_any_number_of_chunks(url: str) -> None:
    """Trees that were tracked alone are a thousand to a chunk, and Lua unpacks no more than 8,000 values."""
    rows = 700_000
    anchors = np.random.default_rng(1).integers(-(1 << 63), -1, rows) | 1
    batch = pa.RecordBatch.from_arrays([pa.nulls(rows, pa.string()), pa.array(anchors)], schema=SCHEMA)
    with Topology(url, "t", ackers=1) as topology:
        core = topology.ledger.core
        topology.ledger.run(schemas.record(core, "words", SCHEMA))
        staged = topology.ledger.run(staging.stage(core, Staging("words", rows=1 << 20), [batch]))
        [segment] = staged.segments
        [(key, _)] = vectors.keys_of(core, segment)
        with raw_client(url) as store:
            fields = store.hgetall(key)
    chunks = len(fields[b"state"])
    assert chunks == rows // 1000
    ones = b"".join(fields[b"ones:%d" % chunk] for chunk in range(chunks))
    assert len(ones) == len(fields[b"slabs"]) == 8 * rows
    deltas = dict(
        zip(np.frombuffer(fields[b"slabs"], ">i8").tolist(), np.frombuffer(ones, "<i8"), strict=True)
    )
    expected = segments.edge_ids(segment.seed, segment.slots[0], np.arange(rows))
    assert [deltas[anchor] for anchor in anchors.tolist()] == expected.tolist()


def test_the_rows_of_a_segment_come_in_batches_that_fit_a_reader() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(SEGMENT_ROWS))], ["number"])
    found = list(segments.decode(segments.encode([rows], "lz4")))
    assert {batch.num_rows for batch in found} == {65_536}
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([rows]))


def test_rows_that_are_kept_are_cut_into_smaller_pieces_than_segments(url: str) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(KEPT_ROWS + 1).astype(str))], ["id"])
    assert KEPT_ROWS < SEGMENT_ROWS
    with Topology(url, "t", ackers=1) as topology:
        how = SpoutOptions("s", "lines", "id")
        made = topology.ledger.run(roots.stage(topology.ledger.core, how, Staging("lines"), [rows]))
    assert [piece.rows for piece in made] == [KEPT_ROWS, 1]
