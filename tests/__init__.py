"""Tests of acker: each runs on real servers, each name states a promise. What they share is in `helpers`."""

import pytest

pytest.register_assert_rewrite("tests.helpers")
