"""Each parser takes any input or raises an error of acker's."""

import importlib.util
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_samples_are_taken(name: str) -> None:
    assert all(map(TARGETS[name], TARGETS[name].samples))


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=60)
@given(data=st.data())
def test_hostile_input_ends_in_an_error_of_ours(name: str, data: st.DataObject) -> None:
    target = TARGETS[name]
    mutated = bytearray(data.draw(st.sampled_from(target.samples)))
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(mutated)))
        end = data.draw(st.integers(start, min(len(mutated), start + 8)))
        mutated[start:end] = data.draw(st.binary(max_size=8))
    target(bytes(mutated))
    target(data.draw(st.binary(max_size=64)))


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not made for this machine"
)
def test_a_few_seconds_of_guided_fuzzing_find_nothing() -> None:
    """Of what comes with the rows, of what a commit finishes, and of what travels between processes."""
    chosen = ["failure", "options", "outcome", "registered", "rows", "staged", "tuple"]
    command = [sys.executable, "-m", "harness.fuzz", "--seconds", "2", *chosen]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
