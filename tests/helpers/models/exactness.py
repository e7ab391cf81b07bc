"""Tasks and commits that fail in the middle, for tests of exactness."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import explode, split

from acker.ledger.calls.core import Core
from acker.spark.records import staging
from acker.store.operation import Operation
from acker.streams.commits import commit as commits
from tests.helpers.faults.attempts import first_attempt


def words(batch: DataFrame, *more: str) -> DataFrame:
    return batch.select(explode(split("line", " ")).alias("word"), "_acker", *more)


class FailingAfterStaging(staging.StageTask):
    """Stages all; then the first attempt of each task fails."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged = list(super().__call__(batches))
        if first_attempt():
            raise RuntimeError("on purpose")
        yield from staged


whole_commit = commits.commit


def cut(after: int) -> Callable[..., Operation[bool]]:
    """A commit as of a process that ends after so many exchanges with the store, as a cluster has them."""

    def commit(core: Core, *arguments: Any) -> Operation[bool]:
        known, core.one_server = core.one_server, False
        operation = whole_commit(core, *arguments)
        replies = None
        for _ in range(after):
            replies = yield operation.send(replies)  # type: ignore[arg-type]
        core.one_server = known
        raise RuntimeError("cut")

    return commit
