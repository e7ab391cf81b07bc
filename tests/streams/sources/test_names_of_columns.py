"""Names of columns as the store has them: text, or the record is unreadable."""

import base64

import pyarrow as pa
import pytest

from acker.errors import StoreError, UnreadableRecord
from acker.streams.log import schemas, segments

NAME = "columnname"
NESTED = [
    pa.struct([(NAME, pa.int64())]),
    pa.list_(pa.struct([(NAME, pa.int64())])),
    pa.map_(pa.string(), pa.struct([("inner", pa.list_(pa.struct([(NAME, pa.int64())])))])),
]


def damaged(whole: bytes) -> bytes:
    found = whole.replace(NAME.encode(), b"\xee" * len(NAME))
    assert found != whole
    return found


@pytest.mark.parametrize("schema", [{NAME: pa.int64()}, *({"x": kind} for kind in NESTED)], ids=str)
def test_a_name_that_is_no_text_is_an_unreadable_record(schema: dict[str, pa.DataType]) -> None:
    batch = pa.RecordBatch.from_pylist([{}], pa.schema(schema))
    payload = segments.encode([batch], "lz4")
    assert [found.schema for found in segments.decode(payload)] == [batch.schema]
    with pytest.raises(UnreadableRecord, match="not the rows of a segment"):
        list(segments.decode(damaged(payload)))
    stored = batch.schema.serialize().to_pybytes()
    assert schemas.parse(base64.b64encode(stored)) == batch.schema
    with pytest.raises(StoreError, match="not a schema"):
        schemas.parse(base64.b64encode(damaged(stored)))
