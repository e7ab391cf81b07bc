"""Steps of functions (`acker.drpc`) that Spark jobs work on: their rows as a DataFrame, their bolts."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from pyspark.sql import DataFrame, SparkSession

from acker.drpc.linear_drpc import LinearDRPC
from acker.drpc.registry import Description
from acker.errors import AckerError, ValidationError
from acker.ledger.settings.suggestions import meant
from acker.spark.bolts import bolt_function
from acker.spark.bolts.bolt import Bolt
from acker.spark.bolts.collector import Collector
from acker.spark.functions.step_collector import StepCollector
from acker.spark.options import options
from acker.spark.options.keywords import BoltOptions, StepOptions, StoreOptions
from acker.spark.options.options import Options
from acker.spark.queries.microbatches import MicroBatch
from acker.spark.source import acker_source
from acker.streams.log.subscriptions import Range
from acker.streams.sources.roots import Roots


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
        acker_source.register(spark)
        parsed = Options.parse(texts)
        self.function.register_in(parsed.ledger())
        reader = spark.readStream.format("acker").options(**texts)
        return reader.schema(acker_source.schema_of(parsed)).load()

    def bolt(
        self, step: str, **given: Unpack[BoltOptions]
    ) -> Callable[[Callable[[DataFrame, "StepCollector"], object]], "StepBolt"]:
        """Makes a function of a batch and a `StepCollector` the bolt of a step, for foreachBatch.

        It is as of `acker.spark.bolt`. Raises ValidationError.
        """
        place = self._place(step)

        def decorate(*functions_given: Callable[[DataFrame, "StepCollector"], object]) -> StepBolt:
            function = bolt_function.check_function(functions_given)
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
