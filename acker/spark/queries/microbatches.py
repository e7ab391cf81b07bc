"""The micro-batch that a task, or a bolt, works for.

Spark has it in local properties of the thread that runs the batch. One of them, the run, is the thread's job
group, which a function of `foreachBatch` may change: so a bolt passes the whole to its tasks in a property of
its own. On Spark Connect, such a function runs in a separate process that learns only the batch's number: it
searches its query in the session, and passes the batch to its tasks by a tag.

Terms: roots are rows of a spout that were staged together, and get a tree each.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from acker.errors import AckerError, UnknownQuery

TRACKS = "acker_track"
"""The name of the tracking function in plans."""
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
    """A micro-batch.

    query: its id, which outlives restarts from the checkpoint. number: Spark's, from 0. run: the id of a run
    of the query, from its start to its end. name: the query's; tasks do not know it. A batch job is a
    micro-batch, too: of its writer, with number 0, and the name of this run.
    """

    query: str
    number: int
    run: str
    name: str = ""


def of_task() -> MicroBatch | None:
    """Returns the batch that this task works for; None outside of a batch."""
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
    """Returns the place of a task's DataFrame: `IN_BOLT`, `IN_JOB`, `IN_FUNCTION`, or "" for none.

    For tasks of a batch write: a query that writes by itself has no function. topology: the only topology
    whose jobs count.
    """
    context = TaskContext.get()
    tags = (context.getLocalProperty(_TAGS) or "") if context else ""
    return _within(context.getLocalProperty, tags, topology) if context else ""


def thread_within(spark: SparkSession) -> str:
    """Returns the place of this thread, as `task_within` does, without jobs."""
    if not hasattr(spark, "sparkContext"):
        return _within(lambda name: None, ",".join(spark.getTags()), "")
    return _within(spark.sparkContext.getLocalProperty, "", "")


def _within(get: Callable[[str], str | None], tags: str, topology: str) -> str:
    """get: a local property; properties of a query's batches are inherited. tags: Connect's."""
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
    """Lets tasks of this thread know, while the block lasts, that they belong to a job of a topology."""
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
    """Yields the batch of a bolt's call; while the block lasts, tasks know it, too.

    spark: the session of the batch. root: on Spark Connect, the session that started the query. Raises
    UnknownQuery, AckerError.
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
    """Makes the tasks of this thread the batch's while the block lasts: Spark identifies them by thread."""
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
    """Sets a tag, which Spark Connect passes on to tasks. A present tag stays."""
    if tag in spark.getTags():
        yield
        return
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


@contextmanager
def _given(context: SparkContext, properties: Mapping[str, str], *others: str) -> Iterator[None]:
    """Gives this thread local properties; restores these, and the others named, afterwards."""
    before = {name: context.getLocalProperty(name) for name in (*properties, *others)}
    for name, value in properties.items():
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
    """Finds the query while its batch runs: the session's only active one, or the one of the bolt's name."""
    if root is None:
        raise AckerError(_OUTSIDE)
    queries = active = root.streams.active
    if len(active) > 1:
        queries = [query for query in active if query.name == bolt]
    if not queries:
        raise UnknownQuery(
            f"on Spark Connect, bolt {bolt!r} cannot tell which of {len(active)} queries of its session has "
            f"called it: start that query with .queryName({bolt!r})"
        )
    [query] = queries
    return MicroBatch(query.id, number, query.runId, query.name or "")
