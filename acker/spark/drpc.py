"""Steps of functions (`acker.drpc`) that Spark jobs work on: their rows as a DataFrame, their bolts."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acker.drpc import registry
from acker.drpc.linear_drpc import LinearDRPC
from acker.drpc.registry import Description
from acker.errors import AckerError, ValidationError
from acker.ledger.settings.suggestions import meant
from acker.spark import answering, functions, once, options
from acker.spark.anchoring import named
from acker.spark.bolts import Bolt
from acker.spark.collector import Collector
from acker.spark.keywords import BoltOptions, StepOptions, StoreOptions
from acker.spark.life import in_life
from acker.spark.options import Options
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.records.calls import RecordFunction
from acker.spark.source import data_source
from acker.spark.versions import arrow_schema
from acker.streams.log import schemas
from acker.streams.log.segments import ANCHORS
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots
from acker.streams.staging.results import RESULT


class SparkSteps:
    """The steps of a function that are declared with `spark=True`, for the jobs that work on them.

        steps = Acker(URL, "web").steps(reach)

        @steps.bolt("following")
        def following(batch, collector):
            collector.emit(batch.join(known, "person").select("follower", "_acker"))

        steps.read(spark, "following").writeStream.foreachBatch(following).option(...).start()

    given: as of `acker.spark.Acker`. Nothing is sent before the first use. Raises ValidationError.
    """

    def __init__(
        self, function: LinearDRPC, *, url: str, topology: str, **given: Unpack[StoreOptions]
    ) -> None:
        self.function = function
        self._what = function.description(topology)
        self._store: dict[str, Any] = {"url": url, "topology": topology, **given}

    def read(self, spark: SparkSession, step: str, **given: Unpack[StepOptions]) -> DataFrame:
        """The rows that a step is to work on, as a streaming DataFrame: what the step before it has emitted.

        Of the first step they are `request` and `args`, JSON. Of one that gathers, a batch has all rows of
        its requests, and `acker.spark.gathered` tells rows from requests. Registers the function. Raises
        FunctionConflict, UnknownTopology and ValidationError.
        """
        place = self._place(step)
        stream, gathers = self._what.stream(place), self._what.steps[place].gathers
        own: dict[str, object] = {"stream": stream, "subscription": step}
        if gathers:
            own["requests"] = True
        declared: dict[str, object] = (
            {"fair_by": self.function.fair_by(step)} if self.function.fair_by(step) else {}
        )
        texts = options.texts({**self._store, **declared, **given, **own})
        data_source.register(spark)
        parsed = Options.parse(texts)
        self.function.register_in(parsed.ledger())
        reader = spark.readStream.format("acker").options(**texts)
        return reader.schema(data_source.schema_of(parsed)).load()

    def bolt(
        self, step: str, **given: Unpack[BoltOptions]
    ) -> Callable[[Callable[[DataFrame, "StepCollector"], object]], "StepBolt"]:
        """Makes a function of a batch and a `StepCollector` the bolt of a step, for foreachBatch.

        It is as of `acker.spark.bolt`. Raises ValidationError.
        """
        place = self._place(step)

        def decorate(*functions_given: Callable[[DataFrame, "StepCollector"], object]) -> StepBolt:
            function = functions.check_function(functions_given)
            return StepBolt(function, self._what, place, {**self._store, **given})

        return decorate

    def _place(self, step: str) -> int:
        steps = self._what.steps
        for place, one in enumerate(steps):
            if one.name == step and one.spark:
                return place
            if one.name == step:
                raise ValidationError(
                    f"step {step!r} of function {self._what.name!r} is worked on in Python: declare it with "
                    "spark=True where a Spark job is to do it"
                )
        names = [one.name for one in steps]
        raise ValidationError(
            f"function {self._what.name!r} has no step {step!r}{meant(step, set(names))}: it has "
            f"{', '.join(names)}"
        )


class StepBolt(Bolt):
    """A function for `DataStreamWriter.foreachBatch` that works on a step; made by `SparkSteps.bolt`."""

    def __init__(
        self, function: Callable[..., object], what: Description, place: int, settings: dict[str, object]
    ) -> None:
        self._what, self._place = what, place
        super().__init__(function, what.steps[place].name, settings)

    def _collector(self, spark: SparkSession, at: MicroBatch) -> Collector:
        return StepCollector(spark, self._options, at, self._what, self._place)

    def _check_read(self, inputs: Sequence[Range | Roots]) -> None:
        own = self._what.stream(self._place)
        for one in inputs:
            other = "rows that it tracks" if isinstance(one, Roots) else f"stream {one.stream!r}"
            if isinstance(one, Roots) or one.stream != own:
                raise AckerError(
                    f"the bolt of step {self.name!r} of function {self._what.name!r} was called with a batch "
                    f"of {other}: its rows are those of stream {own!r}, as "
                    f"steps.read(spark, {self.name!r}) has them"
                )


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
        rows = answering.checked(named(rows, "results"))
        once.check_effects(rows, "results", self._used_once, emits=True)
        keep = round(self._what.timeout + self._what.keep)
        given = self._stage(
            rows, answering.AsJson(rows.schema[RESULT].dataType), results=(self._what.name, keep)
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
