"""Marks of tests that need a later Spark than the oldest (tests/spark/conftest.py)."""

import pytest

several_batches = pytest.mark.since("4.2", "before, a run with Trigger.AvailableNow is one batch")
shared_subscriptions = pytest.mark.since("4.2", "before, a subscription has one query")
geometry = pytest.mark.since("4.2", "before, Spark has no type geometry, or does not let anyone use it")
own_conversion = pytest.mark.since("4.1", "before, a UDF on Arrow converts values in another way")
