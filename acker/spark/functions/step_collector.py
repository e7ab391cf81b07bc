"""The collector of a step of a function that a Spark job carries out."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acker.drpc import registry
from acker.drpc.registry import Description
from acker.errors import ValidationError
from acker.ledger.client import Ledger
from acker.spark.bolts.collector import Collector
from acker.spark.external.sending import SEGMENT_ROWS
from acker.spark.external.sinks import Sink, Write
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
    """The calls of a step's bolt on its batch: a `Collector` that emits to the next step by default.

    Args:
        spark: The session of the batch.
        options: The options of the step.
        batch: The batch.
        ledger: The ledger of the topology.
        description: The function.
        place: The number of the step, from 0.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Options,
        batch: MicroBatch,
        ledger: Ledger,
        description: Description,
        place: int,
    ) -> None:
        super().__init__(spark, options, batch, ledger=ledger)
        self._description, self._place = description, place
        # For each batch: FunctionConflict ends a query of another version.
        self._ledger.run(registry.check(description))

    @in_life
    def emit(
        self,
        rows: DataFrame,
        stream: str = "",
        *,
        anchored: bool = True,
        to: Sink | Write | None = None,
        part: str = "",
        persist: bool | None = None,
        segment_rows: int = SEGMENT_ROWS,
    ) -> int:
        """Emits rows to the next step, with the columns that this step declares, and `_acker`.

        Args:
            rows: The rows, with the column `_acker`.
            stream: Another stream; see `Collector.emit`.
            anchored: See `Collector.emit`.
            to: See `Collector.emit`; for another stream.
            part: See `Collector.emit`.
            persist: See `Collector.emit`.
            segment_rows: See `Collector.emit`.

        Returns:
            The number of emitted rows.

        Raises:
            ValidationError: The columns differ from the step's, or this is the last step.
        """
        if not stream and to is not None:
            raise ValidationError(
                "emit: rows for the next step of a function are in the store: expected no `to`"
            )
        if not stream:
            stream = self._next("emit")
            self._check_columns("emit", named(rows, "emit").schema)
        return super().emit(
            rows, stream, anchored=anchored, to=to, part=part, persist=persist, segment_rows=segment_rows
        )

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
        """Runs `map`, and emits the result to the next step, in one pass over the rows.

        Args:
            rows: See `Collector.map`.
            function: See `Collector.map`.
            schema: See `Collector.map`.
            stream: Another stream; by default the next step's.
            concurrency: See `Collector.map`.
            timeout: See `Collector.map`.
            anchored: See `Collector.emit`.

        Returns:
            The number of emitted rows.

        Raises:
            ValidationError: The columns differ from the step's, or this is the last step.
        """
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
        """Gives the results of requests, in the last step of a function, with the batch's commit.

        A request with no row, or with two, fails. A request whose result has no JSON (NaN), or more than 1
        MiB of it, fails alone.

        Args:
            rows: A row for each request, with its `_acker` and the column `result`: a struct, or a map with
                text keys, becomes an object; an array a list; a decimal a number with all its digits; null
                null; a variant its value.

        Raises:
            ValidationError: This is not the last step, rows have no request, or JSON lacks the type of
                `result`.
        """
        last = self._description.steps[-1].name
        if self._place + 1 < len(self._description.steps):
            raise ValidationError(
                f"results: only the last step of function {self._description.name!r}, {last!r}, gives "
                f"results, and not {self.name!r}: emit rows to the next step"
            )
        rows = function_results.checked(named(rows, "results"))
        once.check_effects(rows, "results", self._used_once, emits=True)
        keep = round(self._description.timeout + self._description.keep)
        given = self._stage(
            rows,
            function_results.AsJson(rows.schema[RESULT].dataType),
            results=(self._description.name, keep),
        )
        without = sum(one.unanchored + one.unfailed + one.treeless for one in given.pieces)
        if without:
            raise ValidationError(
                f"results: {without:,} rows have no request in their column {ANCHORS}: keep it as it came"
            )

    def _next(self, call: str) -> str:
        """Returns the stream of the next step. Raises ValidationError in the last step."""
        if self._place + 1 == len(self._description.steps):
            raise ValidationError(
                f"{call}: step {self.name!r} is the last of function {self._description.name!r}: it gives "
                "the result, by collector.results(rows)"
            )
        return self._description.stream(self._place + 1)

    def _check_columns(self, call: str, schema: StructType) -> None:
        next_schema = self._ledger.run(schemas.read(self._ledger.core, self._next(call)))
        names = [one.name for one in schema if not one.name.startswith(ANCHORS) or one.name == ANCHORS]
        got = schemas.normal(arrow_schema(StructType([schema[name] for name in names])))
        expected, given = ({one.name: str(one.type) for one in of} for of in (next_schema, got))
        if expected != given:
            said = [
                ", ".join(f"{name} {kind}" for name, kind in columns.items()) for columns in (expected, given)
            ]
            raise ValidationError(
                f"{call}: step {self.name!r} of function {self._description.name!r} gives {said[0]}, "
                f"got {said[1]}"
            )
