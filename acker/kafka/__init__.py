"""A spout that reads topics of Kafka, in plain Python (Storm's storm-kafka-client)."""

from acker.errors import NotInstalled

try:
    import confluent_kafka  # noqa: F401 - only to say which extra brings it
except ImportError as error:
    raise NotInstalled(f"acker.kafka: install acker with its extra 'kafka' ({error})") from error

from acker.kafka.record import KafkaBatch, KafkaRecord
from acker.kafka.spout import KafkaSpout

__all__ = ["KafkaBatch", "KafkaRecord", "KafkaSpout"]
