"""The ways of the demo's words between its applications, other than the store: files, or a topic of Kafka."""

from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone imports it

from acker.cli.demo.options import KAFKA
from acker.errors import AckerError
from acker.spark import kafka
from acker.spark.external.sinks import Sink, Write

COLUMNS = "message_id string, attempt int, position int, word string"
"""The columns of words, without their anchors or stamps."""
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""Spark's connector for Kafka of this version also runs under Spark 4.3."""
_STAMP = ("_acker", "_acker_stamp")


class Transport(Protocol):
    """A place of stamped words."""

    def declare(self, spark: SparkSession) -> None:
        """Makes the place, unless it is there."""

    def sink(self) -> Sink | Write:
        """Returns the place as a sink, for `emit(to=...)`."""

    def packed(self, words: DataFrame) -> DataFrame:
        """Returns words as the sink takes them."""

    def read(self, spark: SparkSession) -> DataFrame:
        """Returns a stream of the rows there."""

    def unpacked(self, rows: DataFrame) -> DataFrame:
        """Returns the words of rows that were received."""


class Files:
    """Words in parquet files of a directory, with their stamps in the column `_acker_stamp`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def declare(self, spark: SparkSession) -> None:
        """Makes the directory."""
        Path(self.directory).mkdir(parents=True, exist_ok=True)

    def sink(self) -> Write:
        """Returns a function that appends to the files."""
        return lambda writer: writer.mode("append").parquet(self.directory)

    def packed(self, words: DataFrame) -> DataFrame:
        """Returns words as they are."""
        return words

    def read(self, spark: SparkSession) -> DataFrame:
        """Returns a stream of the files."""
        files = spark.readStream.schema(f"{COLUMNS}, _acker_stamp string")
        return files.option("maxFilesPerTrigger", 64).parquet(self.directory)

    def unpacked(self, rows: DataFrame) -> DataFrame:
        """Returns rows as they are."""
        return rows


class Topic:
    """Words as JSON in a topic of Kafka, with their stamps in the header `acker-stamp`."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers, self.name = servers, name
        self._options = {"kafka.bootstrap.servers": servers, "subscribe": name, "includeHeaders": "true"}

    def declare(self, spark: SparkSession) -> None:
        """Makes the topic. Raises AckerError without Spark's connector, or if the broker does not make it."""
        try:
            spark.read.format("kafka").options(**self._options).load()
        except AnalysisException as error:
            raise AckerError(
                "Spark has no connector for Kafka. Expected its jars: set PYSPARK_SUBMIT_ARGS='--packages "
                f"{_CONNECTOR} pyspark-shell', or spark.jars.packages or spark.jars in spark-defaults.conf"
            ) from error
        jvm: Any = spark._jvm
        properties, unset = jvm.java.util.Properties(), jvm.java.util.Optional.empty()
        properties.put("bootstrap.servers", self.servers)
        properties.put("default.api.timeout.ms", "30000")
        clients = jvm.org.apache.kafka.clients.admin
        admin = clients.AdminClient.create(properties)
        try:  # partitions and replicas are as the broker has them by default
            admin.createTopics(jvm.java.util.List.of(clients.NewTopic(self.name, unset, unset))).all().get()
        except Py4JJavaError as error:
            reason = str(error.java_exception)
            if "TopicExistsException" not in reason:
                raise AckerError(f"the topic {self.name} at {KAFKA}{self.servers}: {reason}") from error
        finally:
            admin.close()

    def sink(self) -> Sink:
        """Returns the topic."""
        return kafka.to(self.servers, self.name)

    def packed(self, words: DataFrame) -> DataFrame:
        """Returns words as JSON."""
        columns = [name for name in words.columns if name not in _STAMP]
        return words.select(F.to_json(F.struct(*columns)).alias("value"), "_acker")

    def read(self, spark: SparkSession) -> DataFrame:
        """Returns a stream of all that the topic has."""
        return spark.readStream.format("kafka").options(**self._options, startingOffsets="earliest").load()

    def unpacked(self, rows: DataFrame) -> DataFrame:
        """Returns the words, beside the anchors and stamps of their rows."""
        word = F.from_json(F.col("value").cast("string"), COLUMNS)
        return rows.select(word.alias("one"), *_STAMP).select("one.*", *_STAMP)


def transport_of(words: str) -> Transport | None:
    """The transport of the argument `--words`: a directory, or `kafka://HOST:PORT/TOPIC`; None for none."""
    if not words.startswith(KAFKA):
        return Files(words) if words else None
    servers, _, name = words.removeprefix(KAFKA).partition("/")
    return Topic(servers, name)
