"""The ids of topics, which tell a topic from one that was made anew under its name."""

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from acker.kafka import starts
from acker.kafka.options import admin_settings

IDS = 5.0
"""Seconds for which an assignment waits for the ids of its topics, until a broker has told none in time."""
LONGEST = 300.0
"""Seconds between two questions at most, while no broker answers."""
_UNKNOWABLE = (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION)
_log = logging.getLogger(__name__)


class TopicIds:
    """The ids of topics, as far as brokers tell them. Not for several threads.

    A broker that is slow is asked again, later each time, and nothing waits for its answer. One that has no
    ids, because it is too old, is not asked again.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._admin: AdminClient | None = AdminClient(admin_settings(settings))
        self._asked: dict[str, Future[Any]] = {}
        self._seen = self._slow = False
        self._pause, self._next = 1.0, 0.0

    def close(self) -> None:
        """Ends the connections: no id is known from then on."""
        self._admin, self._asked = None, {}

    def of(self, names: set[str], wait: bool = True) -> dict[str, str]:
        """The ids of topics. wait: False takes answers to earlier questions alone, and asks again."""
        deadline = time.monotonic() + (IDS if wait and not self._slow else 0.0)
        self._ask(names - self._asked.keys(), wait)
        told: dict[str, str] = {}
        for name in sorted(names & self._asked.keys()):
            if (answer := self._answer(name, deadline)) is not None:
                told[name] = answer
        if told:
            self._seen, self._slow, self._pause = True, False, 1.0
        return {name: topic_id for name, topic_id in told.items() if topic_id}

    def _ask(self, names: set[str], now: bool) -> None:
        at = time.monotonic()
        if not names or self._admin is None or (self._slow and at < self._next):
            return
        if not self._seen:
            self._next, self._pause = at + self._pause, min(LONGEST, 2 * self._pause)
        self._asked |= self._admin.describe_topics(
            TopicCollection(sorted(names)), request_timeout=max(1.0, 2 * IDS)
        )

    def _answer(self, name: str, deadline: float) -> str | None:
        """The answer for a topic, "" for a broker without ids; None if there is none yet."""
        future = self._asked[name]
        try:
            topic_id = starts.topic_id_of(future.result(max(0.0, deadline - time.monotonic())).topic_id)
        except TimeoutError:
            self._has_no_answer()
            return None
        except KafkaException as error:
            del self._asked[name]
            if error.args[0].code() in _UNKNOWABLE:
                self._stop()
                return ""
            _log.info("the id of topic %s is not known: %s", name, error)
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._has_no_answer()
            return None
        del self._asked[name]
        if not topic_id:
            self._stop()
        return topic_id

    def _has_no_answer(self) -> None:
        if not self._seen and not self._slow:
            _log.warning("the broker has told no id of a topic in time: it is asked again")
            self._slow = True

    def _stop(self) -> None:
        if self._admin is not None:
            _log.warning("the broker has no ids of topics: a topic made anew is known by its offsets alone")
        self.close()
