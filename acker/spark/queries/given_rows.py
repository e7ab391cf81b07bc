"""Rows of external streams as a step gets them: no operator may leave some out, or give others later.

A row that is left out between the source and the step gets no bit: its segment stays open, and its records
are replayed for ever.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.errors import UnsafePlan
from acker.spark.queries.microbatches import MicroBatch

_LEAVE_OUT = {
    "Filter": "a filter",
    "TypedFilter": "a filter",
    "Join": "a join",
    "Aggregate": "an aggregate",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Distinct": "distinct",
    "Except": "except",
    "Intersect": "intersect",
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "Limit": "limit",
    "Tail": "tail",
    "Offset": "offset",
    "Sample": "sample",
    "Window": "a window",
    "WithWindowDefinition": "a window",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
}
_IN_STATE = frozenset(
    {
        "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "Join",
        "FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState", "TransformWithState",
        "TransformWithStateInPySpark",
    }
)  # fmt: skip
"""Operators that keep rows of a query for its later batches."""
_VARY = _LEAVE_OUT.keys() - {"Filter", "TypedFilter"}
"""Operators that may choose other rows in each evaluation, also where Spark calls them deterministic."""
_FIXED = ("LocalRelation", "Range", "OneRowRelation")
"""Leaves of plans whose rows stay the same: rows of the driver."""
_OF_BATCH = ("LogicalRDD", "StreamingDataSourceV2ScanRelation")
"""Leaves that have the rows of a batch: it has fixed offsets."""
_LISTED = ("InMemoryFileIndex", "TahoeBatchFileIndex")
"""Lists of files that do not change between two evaluations."""
_BY_COLUMN = ("ParquetFileFormat", "OrcFileFormat")
"""Formats whose rows are the same ones however few of their columns are read."""
_PASS_OVER = ("ignoreCorruptFiles", "ignoreMissingFiles")
"""Options of files: an evaluation leaves out what it cannot read, which depends on columns and on time."""
_OUTSIDE = (
    "what it leaves out is never acked, and their records would be replayed for ever. Nothing was acked: "
    "move it into the function"
)
_STATE = (
    "Spark keeps its rows in a state for later batches. To ack them, acker would need their stamps in that "
    "state, and Spark would have to tell which rows leave it, and which it drops as late: it does not. "
    "Nothing was acked: keep the rows of open windows by collector.hold, and aggregate them in the function"
)
_MOST_NODES = 10_000
_MOST_FILES = 1_000
"""Files whose states are compared at most: each takes some calls of the JVM."""
Files: TypeAlias = Sequence[tuple[Any, int, int]]
"""Paths of files, each with its length and the time of its last write (ms)."""


def are_steady(rows: DataFrame, batch: MicroBatch | None) -> bool:
    """True if each evaluation of rows gives the same rows, as far as Spark tells.

    Args:
        rows: The rows of a stream, in a batch or a job.
        batch: The batch of a query; None for a job.

    Raises:
        UnsafePlan: The query of the batch has an operator that leaves out rows, or keeps them for a later
            batch.
    """
    if not hasattr(rows.sparkSession, "sparkContext"):
        return False
    try:
        own: Any = rows._jdf.queryExecution().analyzed()
        nodes = _nodes(own)
        steady = bool(own.deterministic()) and own.subqueriesAll().isEmpty() and len(nodes) < _MOST_NODES
        steady = steady and not any(node.nodeName() in _VARY for node in nodes)
        steady = steady and _are_fixed(nodes, () if batch is None else _OF_BATCH)
        conf = rows.sparkSession.conf
        steady = steady and all(conf.get(f"spark.sql.files.{name}") == "false" for name in _PASS_OVER)
        if batch is None:
            return steady
        query = _query(rows, batch)
        if query is None:
            return False
        written, planned = query[0].analyzedPlan(), query[1].optimizedPlan()
    except (AttributeError, Py4JError, TypeError):
        return False
    for node in _nodes(written):
        if operator := _left_out_by(node):
            way_out = _STATE if _keeps_state(node) else _OUTSIDE
            raise UnsafePlan(f"the query has {operator} between its source and the step: {way_out}")
    return steady and bool(planned.deterministic()) and _are_fixed(_nodes(planned), _OF_BATCH)


def listed_files(rows: DataFrame, batch: MicroBatch | None) -> Files | None:
    """The files of which steady rows are read, as Spark has listed them; None if some may be of elsewhere.

    None also where a file written anew could look the same: its time has whole seconds, as in a file system
    that keeps no finer times.
    """
    try:
        leaves = _leaves(_nodes(rows._jdf.queryExecution().analyzed()))
        query = None if batch is None else _query(rows, batch)
        if query is not None:  # a frame of another RDD stays among the leaves, and is none of files
            of_batch = query[1].toRdd().id()
            leaves = [leaf for leaf in leaves if _kind(leaf) != "LogicalRDD" or leaf.rdd().id() != of_batch]
            leaves += _leaves(_nodes(query[1].optimizedPlan()))
        files = list[tuple[Any, int, int]]()
        for leaf in leaves:
            if _kind(leaf) in _FIXED:
                continue
            if not _are_listed_files(leaf) or _kind(leaf.relation().location()) != "InMemoryFileIndex":
                return None
            listed = leaf.relation().location().allFiles()
            if len(files) + listed.size() > _MOST_FILES:
                return None
            statuses = [listed.apply(place) for place in range(listed.size())]
            files += [(one.getPath(), int(one.getLen()), int(one.getModificationTime())) for one in statuses]
    except (AttributeError, Py4JError, TypeError):
        return None
    return files if all(written % 1000 for _, _, written in files) else None


def are_fetched(rows: DataFrame, batch: MicroBatch) -> bool:
    """True if each evaluation of a batch fetches its rows from Kafka once more, as far as Spark tells."""
    try:
        query = _query(rows, batch)
        leaves = [] if query is None else _leaves(_nodes(query[1].optimizedPlan()))
        return any(_kind(leaf) == _OF_BATCH[1] and _kind(leaf.scan()) == "KafkaScan" for leaf in leaves)
    except (AttributeError, Py4JError, TypeError):
        return False


def are_unchanged(spark: SparkSession, files: Files) -> bool:
    """True if files are as they were listed: what was read of them in between, each evaluation has read."""
    settings: Any = spark.sparkContext._jsc
    try:
        for path, length, written in files:
            now = path.getFileSystem(settings.hadoopConfiguration()).getFileStatus(path)
            if (int(now.getLen()), int(now.getModificationTime())) != (length, written):
                return False
    except (AttributeError, Py4JError, TypeError):
        return False
    return True


def column_of_files(rows: DataFrame, batch: MicroBatch, column: str) -> DataFrame | None:
    """A column of a batch of listed files, read without the others; None if Spark does not tell how.

    The rows of a batch are an RDD of Spark's, which reads all columns of the query. So the column is read
    from the same list of files, where all between it and the rows are choices of columns.
    """
    try:
        query = _query(rows, batch)
        if query is None:
            return None
        own: Any = rows._jdf.queryExecution().analyzed()
        leaf, place = _traced(own, list(rows.columns).index(column))
        if _kind(leaf) != "LogicalRDD" or leaf.rdd().id() != query[1].toRdd().id():
            return None
        leaf, place = _traced(query[1].optimizedPlan(), place)
        if _kind(leaf) != "LogicalRelation" or _kind(leaf.relation().fileFormat()) not in _BY_COLUMN:
            return None
        spark: Any = rows.sparkSession
        files = DataFrame(spark._jsparkSession.baseRelationToDataFrame(leaf.relation()), spark)
        named = files.columns.index(leaf.output().apply(place).name())
    except (AttributeError, Py4JError, TypeError, ValueError):
        return None
    numbered = files.toDF(*(f"c{at}" for at in range(len(files.columns))))
    return numbered.select(F.col(f"c{named}").alias(column))


def may_be_of_batch(rows: DataFrame) -> bool:
    """True if rows were made of the batch of a bolt, as far as Spark tells."""
    if not hasattr(rows.sparkSession, "sparkContext"):
        return True
    try:
        return any(_kind(node) == "LogicalRDD" for node in _nodes(rows._jdf.queryExecution().analyzed()))
    except (AttributeError, Py4JError, TypeError):
        return True


def _left_out_by(node: Any) -> str | None:
    """The operator of a node, if it leaves out rows."""
    name = node.nodeName()
    if name == "Generate" and not node.outer():
        return "explode, which leaves out rows with nothing in them (explode_outer does not),"
    return _LEAVE_OUT.get(name)


def _keeps_state(node: Any) -> bool:
    """True if a node of a query keeps rows for later batches: all its children are streams."""
    children = node.children()
    streams = all(children.apply(place).isStreaming() for place in range(children.size()))
    return node.nodeName() in _IN_STATE and streams


def _query(rows: DataFrame, batch: MicroBatch) -> tuple[Any, Any] | None:
    """A query, and the execution of its batch; None if Spark does not tell."""
    spark: Any = rows.sparkSession
    jvm: Any = spark.sparkContext._jvm
    active = spark._jsparkSession.sharedState().activeStreamingQueries()
    query = active.get(jvm.java.util.UUID.fromString(batch.query))
    return None if query is None else (query, query.lastExecution())


def _nodes(plan: Any) -> list[Any]:
    """The nodes of a plan."""
    nodes, left = list[Any](), [plan]
    while left and len(nodes) < _MOST_NODES:
        node = left.pop()
        nodes.append(node)
        children = node.children()
        left += [children.apply(place) for place in range(children.size())]
    return nodes


def _traced(plan: Any, place: int) -> tuple[Any, int]:
    """The node of which a plan chooses columns, and the place there of a column of the plan.

    Raises ValueError if it is the result of an expression.
    """
    while _kind(plan) == "Project":
        chosen, child = plan.projectList().apply(place), plan.child()
        if _kind(chosen) == "Alias":
            chosen = chosen.child()
        if _kind(chosen) != "AttributeReference":
            raise ValueError("it is made of other columns")
        output = child.output()
        ids = [output.apply(at).exprId().id() for at in range(output.size())]
        plan, place = child, ids.index(chosen.exprId().id())
    return plan, place


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _are_fixed(nodes: list[Any], more: tuple[str, ...]) -> bool:
    """True if the leaves have the same rows in each evaluation. more: kinds of leaves that count as such."""
    return all(_kind(leaf) in (*_FIXED, *more) or _are_listed_files(leaf) for leaf in _leaves(nodes))


def _leaves(nodes: list[Any]) -> list[Any]:
    return [node for node in nodes if not node.children().size()]


def _are_listed_files(leaf: Any) -> bool:
    """True if a leaf reads files that were listed, and no row is left out because of how it is read."""
    if _kind(leaf) != "LogicalRelation" or _kind(leaf.relation()) != "HadoopFsRelation":
        return False
    relation = leaf.relation()
    options, each = dict[str, str](), relation.options().iterator()
    while each.hasNext():
        pair = each.next()
        options[str(pair._1()).lower()] = str(pair._2()).lower()
    drops = options.get("mode") == "dropmalformed" or any(
        options.get(name.lower(), "false") != "false" for name in _PASS_OVER
    )
    return _kind(relation.location()) in _LISTED and not drops
