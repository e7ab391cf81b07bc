"""Which micro-batch of which streaming query is at work: as its tasks learn it, and as a bolt does.

Spark tells both in local properties of the thread that runs the batch. One of them, the run, is the thread's
job group, which a function of `foreachBatch` may change: so a bolt tells its tasks all by a property of its
own. On Spark Connect, such a function runs in a process of its own that learns no more than the batch's
number: it looks for its query among those of the session, and tells its tasks by a tag, which Spark hands on.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from acker.errors import AckerError, UnknownQuery

_QUERY = "sql.streaming.queryId"
_NUMBER = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"
_GROUP = (_RUN, _DESCRIPTION, "spark.job.interruptOnCancel")
_TAGS = "spark.job.tags"
_TAG = "acker-batch:"
_OWN = "acker.batch"
_JOB = "acker.job"
IN_BOLT = "in the function of a bolt"
IN_JOB = "in the block of a job"
IN_FUNCTION = "in a function of foreachBatch"
_OUTSIDE = (
    "a bolt is a function for DataStreamWriter.foreachBatch, and was called from elsewhere. To try it on "
    "some rows, in a test: acker.testing.run_bolt(bolt, rows)"
)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch. query: its id, which outlives restarts from the checkpoint. number: Spark's, from 0.

    run: the id of a run of the query, one from its start to its end. name: the query's; tasks do not know it.
    A batch job is one, too: its writer in place of the query, 0, and what names this run of it.
    """

    query: str
    number: int
    run: str
    name: str = ""


def of_task() -> MicroBatch | None:
    """The batch that this task works for; None outside of one."""
    context = TaskContext.get()
    if context is None:
        return None
    query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_NUMBER)
    if query and number:
        batch = MicroBatch(query, int(number), context.getLocalProperty(_RUN) or "")
        own = context.getLocalProperty(_OWN)
        # A query that the bolt has started has inherited the property: it is not of that query's batches.
        return _parse(own) if own and own.startswith(_text(replace(batch, run=""))) else batch
    for tag in (context.getLocalProperty(_TAGS) or "").split(","):
        _, found, text = tag.partition(_TAG)
        if found:
            return _parse(text)
    return None


def _text(batch: MicroBatch) -> str:
    return f"{batch.query}:{batch.number}:{batch.run}"


def _parse(text: str) -> MicroBatch:
    query, number, run = text.split(":", 2)
    return MicroBatch(query, int(number), run)


def task_within(topology: str) -> str:
    """Where a task's DataFrame is evaluated: `IN_BOLT`, `IN_JOB`, `IN_FUNCTION`, or "" for none of these.

    Of a task of a batch write: one of a query that writes by itself is in no function. topology: the only one
    whose jobs count.
    """
    context = TaskContext.get()
    tags = (context.getLocalProperty(_TAGS) or "") if context else ""
    return _within(context.getLocalProperty, tags, topology) if context else ""


def thread_within(spark: SparkSession) -> str:
    """Where this thread is, as of `task_within`, but for jobs."""
    if not hasattr(spark, "sparkContext"):
        return _within(lambda name: None, ",".join(spark.getTags()), "")
    return _within(spark.sparkContext.getLocalProperty, "", "")


def _within(get: Callable[[str], str | None], tags: str, topology: str) -> str:
    """get: a local property; those of a query's batches are inherited by what it starts. tags: of Connect."""
    place = _place(get)
    if (get(_OWN) or "").startswith(place) if place else _TAG in tags:
        return IN_BOLT
    prefix = f"{_JOB}:{topology}:"
    if get(_JOB) == prefix + place or (not place and any(tag.endswith(prefix) for tag in tags.split(","))):
        return IN_JOB
    return IN_FUNCTION if place else ""


def _place(get: Callable[[str], str | None]) -> str:
    query = get(_QUERY)
    return f"{query}:{get(_NUMBER)}:" if query else ""


@contextmanager
def of_job(spark: SparkSession, topology: str) -> Iterator[None]:
    """While the block lasts, tasks of this thread can tell that they are of a job of a topology."""
    prefix = f"{_JOB}:{topology}:"
    if not hasattr(spark, "sparkContext"):
        with _tagged(spark, prefix):
            yield
        return
    context = spark.sparkContext
    with _given(context, {_JOB: prefix + _place(context.getLocalProperty)}):
        yield


@contextmanager
def of_bolt(spark: SparkSession, number: int, root: SparkSession | None, bolt: str) -> Iterator[MicroBatch]:
    """The batch that a bolt was called with; while the block lasts, tasks can tell it, too.

    spark: the batch's session. root: on Spark Connect, the session that has started the query.
    Raises UnknownQuery, AckerError.
    """
    if not hasattr(spark, "sparkContext"):
        batch = _remote(root, number, bolt)
        with _tagged(spark, _TAG + _text(batch)):
            yield batch
        return
    batch = _local(spark.sparkContext, number)
    # The thread is the query's: a job group that the bolt has left would hide the next batch, also from
    # Spark, which stops the jobs of a query by their group.
    with _given(spark.sparkContext, {_OWN: _text(batch)}, *_GROUP):
        yield batch


@contextmanager
def joined(spark: SparkSession, batch: MicroBatch) -> Iterator[None]:
    """Makes the tasks of this thread the batch's while the block lasts: Spark tells them by the thread."""
    text = _text(batch)
    if not hasattr(spark, "sparkContext"):
        with _tagged(spark, _TAG + text):
            yield
        return
    own = {_OWN: text, _QUERY: batch.query, _NUMBER: str(batch.number), _RUN: batch.run}
    there = spark.sparkContext.getLocalProperty(_OWN) == text
    with _given(spark.sparkContext, {} if there else own):
        yield


@contextmanager
def _tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Spark Connect hands a tag on to tasks. One that is there already stays."""
    if tag in spark.getTags():
        yield
        return
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


@contextmanager
def _given(context: SparkContext, own: Mapping[str, str], *others: str) -> Iterator[None]:
    """Gives this thread local properties. Afterwards these, and the others named, are as they were."""
    before = {name: context.getLocalProperty(name) for name in (*own, *others)}
    for name, value in own.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            context.setLocalProperty(name, cast(str, earlier))  # None removes it


def _local(context: SparkContext, number: int) -> MicroBatch:
    query = context.getLocalProperty(_QUERY)
    if not query:
        raise AckerError(_OUTSIDE)
    # A query's name is found only in the description of its jobs, which starts with it.
    described = context.getLocalProperty(_DESCRIPTION) or ""
    name = described.partition(f"id = {query}")[0].strip().removesuffix("<br/>")
    return MicroBatch(query, number, context.getLocalProperty(_RUN) or "", name)


def _remote(root: SparkSession | None, number: int, bolt: str) -> MicroBatch:
    """A query is active while its batch runs: the session's only one, or that with the bolt's name."""
    if root is None:
        raise AckerError(_OUTSIDE)
    found = active = root.streams.active
    if len(active) > 1:
        found = [query for query in active if query.name == bolt]
    if not found:
        raise UnknownQuery(
            f"on Spark Connect, bolt {bolt!r} cannot tell which of {len(active)} queries of its session has "
            f"called it: start that query with .queryName({bolt!r})"
        )
    [query] = found
    return MicroBatch(query.id, number, query.runId, query.name or "")
