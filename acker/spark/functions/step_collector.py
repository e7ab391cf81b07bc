"""The collector of a step of a function that a Spark job works on."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acker.drpc import registry
from acker.drpc.registry import Description
from acker.errors import ValidationError
from acker.spark.bolts.collector import Collector
from acker.spark.options.options import Options
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.records import function_results, once
from acker.spark.records.anchors import named
from acker.spark.records.calls import RecordFunction
from acker.spark.runtime.scope import in_life
from acker.spark.runtime.versions import arrow_schema
from acker.streams.log import schemas
from acker.streams.log.segments import ANCHORS
from acker.streams.staging.results import RESULT


class StepCollector(Collector):
    """What the bolt of a step does with a batch: as of any bolt, and it knows the step after it."""

    def __init__(
        self, spark: SparkSession, options: Options, batch: MicroBatch, what: Description, place: int
    ) -> None:
        super().__init__(spark, options, batch)
        self._what, self._place = what, place
        self._ledger.run(registry.check(what))  # each batch: FunctionConflict ends a query of another version

    @in_life
    def emit(self, rows: DataFrame, stream: str = "", *, anchored: bool = True) -> int:
        """Emits rows to the step after this one, with the columns that this one gives, and `_acker`.

        Returns how many. stream: another one, as of any bolt. Raises ValidationError.
        """
        if not stream:
            stream = self._next("emit")
            self._check_columns("emit", named(rows, "emit").schema)
        return super().emit(rows, stream, anchored=anchored)

    @in_life
    def emit_map(
        self,
        rows: DataFrame,
        function: RecordFunction,
        schema: StructType | str,
        stream: str = "",
        *,
        concurrency: int | None = None,
        timeout: float | None = None,
        anchored: bool = True,
    ) -> int:
        """As `map`, and emits the result as `emit` does."""
        if not stream:
            stream = self._next("emit_map")
            if isinstance(schema, str):
                schema = self.spark.createDataFrame([], schema).schema
            own = [one for one in named(rows, "emit_map").schema if one.name == ANCHORS]
            self._check_columns("emit_map", StructType([*schema.fields, *own]))
        return super().emit_map(
            rows, function, schema, stream, concurrency=concurrency, timeout=timeout, anchored=anchored
        )

    @in_life
    def results(self, rows: DataFrame) -> None:
        """Gives the results of requests, of a function whose last step this is.

        rows: one for each request, with its `_acker` and its `result`, a column of any type that JSON has: a
        struct or a map with text for keys is an object, an array a list, a decimal a number with all its
        digits, null is null, and a variant is what it holds. A request without a row, or with two, fails; so
        does, alone, one whose result JSON has not (NaN), or whose JSON has more than 1 MiB. What is given
        takes effect with the batch's commit. Raises ValidationError, also for a type that JSON has not.
        """
        last = self._what.steps[-1].name
        if self._place + 1 < len(self._what.steps):
            raise ValidationError(
                f"results: the last step of function {self._what.name!r} gives them, {last!r}, and not "
                f"{self.name!r}: emit rows to the next one"
            )
        rows = function_results.checked(named(rows, "results"))
        once.check_effects(rows, "results", self._used_once, emits=True)
        keep = round(self._what.timeout + self._what.keep)
        given = self._stage(
            rows, function_results.AsJson(rows.schema[RESULT].dataType), results=(self._what.name, keep)
        )
        without = sum(one.unanchored + one.unfailed + one.treeless for one in given.pieces)
        if without:
            raise ValidationError(
                f"results: {without:,} rows have no request in their column {ANCHORS}: keep it as it came"
            )

    def _next(self, call: str) -> str:
        """The stream of the step after this one."""
        if self._place + 1 == len(self._what.steps):
            raise ValidationError(
                f"{call}: step {self.name!r} is the last of function {self._what.name!r}: it gives the "
                "result, by collector.results(rows)"
            )
        return self._what.stream(self._place + 1)

    def _check_columns(self, call: str, schema: StructType) -> None:
        known = self._ledger.run(schemas.read(self._ledger.core, self._next(call)))
        names = [one.name for one in schema if not one.name.startswith(ANCHORS) or one.name == ANCHORS]
        got = schemas.normal(arrow_schema(StructType([schema[name] for name in names])))
        expected, found = ({one.name: str(one.type) for one in of} for of in (known, got))
        if expected != found:
            said = [
                ", ".join(f"{name} {kind}" for name, kind in columns.items()) for columns in (expected, found)
            ]
            raise ValidationError(
                f"{call}: step {self.name!r} of function {self._what.name!r} gives {said[0]}, got {said[1]}"
            )
