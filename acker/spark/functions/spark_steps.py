"""Steps of functions (`acker.drpc`) that Spark jobs carry out: their rows as a DataFrame, their bolts."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from pyspark.sql import DataFrame, SparkSession

from acker.drpc.linear_drpc import LinearDRPC
from acker.drpc.registry import Description
from acker.errors import AckerError, ValidationError
from acker.ledger.client import Ledger
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
    """The steps of a function that are declared with `spark=True`, for the jobs that carry them out.

        steps = Acker(URL, "web").steps(reach)

        @steps.bolt("following")
        def following(batch, collector):
            collector.emit(batch.join(known, "person").select("follower", "_acker"))

        steps.read(spark, "following").writeStream.foreachBatch(following).option(...).start()

    The first use connects.

    Args:
        function: The function.
        url: The store.
        topology: The name of the topology.
        **given: See `acker.spark.Acker`.

    Raises:
        ValidationError: The function is not complete, or an argument is invalid.
    """

    def __init__(
        self, function: LinearDRPC, *, url: str, topology: str, **given: Unpack[StoreOptions]
    ) -> None:
        self.function = function
        self._description = function.description(topology)
        self._store: dict[str, Any] = {"url": url, "topology": topology, **given}

    def read(self, spark: SparkSession, step: str, **given: Unpack[StepOptions]) -> DataFrame:
        """Reads the input rows of a step as a streaming DataFrame, and registers the function.

        The rows of the first step have `request` and `args` (JSON). If the step gathers, a batch has all rows
        of its requests, and `acker.spark.gathered` separates rows from requests.

        Args:
            spark: The session of the query.
            step: The name of the step.
            **given: `fair_by` and the limits of a batch (`acker.spark.options.options.Options`).

        Returns:
            The rows that the previous step has emitted, with the column `_acker`.

        Raises:
            FunctionConflict: The function is registered with other steps.
            UnknownTopology: The topology does not exist.
            ValidationError: The function has no such step, or it is not declared with `spark=True`.
        """
        place = self._place(step)
        stream, gathers = self._description.stream(place), self._description.steps[place].gathers
        options_of_step: dict[str, object] = {"stream": stream, "subscription": step}
        if gathers:
            options_of_step["requests"] = True
        declared: dict[str, object] = (
            {"fair_by": self.function.fair_by(step)} if self.function.fair_by(step) else {}
        )
        texts = options.texts({**self._store, **declared, **given, **options_of_step})
        acker_source.register(spark)
        parsed = Options.parse(texts)
        self.function.register_in(parsed.ledger())
        reader = spark.readStream.format("acker").options(**texts)
        return reader.schema(acker_source.schema_of(parsed)).load()

    def bolt(
        self, step: str, **given: Unpack[BoltOptions]
    ) -> Callable[[Callable[[DataFrame, "StepCollector"], object]], "StepBolt"]:
        """Makes a function of a batch and a `StepCollector` the bolt of a step, for foreachBatch.

        Args:
            step: The name of the step.
            **given: Options of the data source, as in `acker.spark.bolt`.

        Returns:
            A decorator of the function.

        Raises:
            ValidationError: The function has no such step, or an option is invalid.
        """
        place = self._place(step)

        def decorate(*functions_given: Callable[[DataFrame, "StepCollector"], object]) -> StepBolt:
            function = bolt_function.check_function(functions_given)
            return StepBolt(function, self._description, place, {**self._store, **given})

        return decorate

    def _place(self, step: str) -> int:
        steps = self._description.steps
        for place, declared in enumerate(steps):
            if declared.name == step and declared.spark:
                return place
            if declared.name == step:
                raise ValidationError(
                    f"step {step!r} of function {self._description.name!r} is a step in plain Python: "
                    "declare it with spark=True to have a Spark job run it"
                )
        names = [declared.name for declared in steps]
        raise ValidationError(
            f"function {self._description.name!r} has no step {step!r}{meant(step, set(names))}: it has "
            f"{', '.join(names)}"
        )


class StepBolt(Bolt):
    """A bolt of a step for `DataStreamWriter.foreachBatch`, made by `SparkSteps.bolt`."""

    def __init__(
        self,
        function: Callable[..., object],
        description: Description,
        place: int,
        settings: dict[str, object],
    ) -> None:
        self._description, self._place = description, place
        super().__init__(function, description.steps[place].name, settings)
        if self._options.observe:
            raise ValidationError(
                f"step {self.name!r} of function {description.name!r}: expected no observe=True, because its "
                "rows lie in the store"
            )

    def _collector(self, spark: SparkSession, at: MicroBatch, ledger: Ledger) -> Collector:
        return StepCollector(spark, self._options, at, ledger, self._description, self._place)

    def _check_read(self, inputs: Sequence[Range | Roots]) -> None:
        stream = self._description.stream(self._place)
        for one in inputs:
            other = "rows that it tracks" if isinstance(one, Roots) else f"stream {one.stream!r}"
            if isinstance(one, Roots) or one.stream != stream:
                raise AckerError(
                    f"the bolt of step {self.name!r} of function {self._description.name!r} was called "
                    f"with a batch of {other}: expected rows of stream {stream!r}. Read them by "
                    f"steps.read(spark, {self.name!r})"
                )
