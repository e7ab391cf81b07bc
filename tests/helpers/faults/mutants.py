"""Mutants: acker without one of its mechanisms of exactness, for a simulator that is to find them."""

import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

from acker.store import scripts
from tests.helpers.faults.simulator import Move, World, histories, run_history

Function = Callable[..., Any]


@dataclass(frozen=True)
class Mutant:
    """A mechanism, and what removes it: text in Lua scripts, or in functions of Python, that is replaced.

    backs, cluster: the kind of histories that need the mechanism. seed: of the search that finds it.
    known: a history that does, if a search takes long. most, of: the size of chunks, the seed of the world.
    """

    mechanism: str
    world: type[World]
    replaced: Sequence[tuple[Function | None, str, str]]
    backs: tuple[str, ...] = ()
    cluster: bool = False
    seed: int = 0
    known: tuple[Move, ...] = ()
    most: int | None = None
    of: int = 0

    @contextmanager
    def living(self) -> Iterator[None]:
        """acker is without the mechanism meanwhile."""
        with pytest.MonkeyPatch.context() as patch:
            for function, old, new in self.replaced:
                if function is None:
                    _replace_in_scripts(patch, old, new)
                else:
                    _replace_in_function(patch, function, old, new)
            yield

    def found(self, url: str, examples: int, *, shrunk: bool = False) -> list[Move] | None:
        """A history that the mutant fails, of so many; None where it passes all."""

        def fails(history: list[Move]) -> bool:
            try:
                run_history(self.world, url, history, cluster=self.cluster, seed=self.of, most=self.most)
            except Exception:  # noqa: BLE001 - whatever it fails with
                return True
            return False

        phases = [Phase.generate, *([Phase.shrink] if shrunk else [])]
        bounded = settings(
            max_examples=examples,
            phases=phases,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        drawn = histories(self.world, backs=self.backs)
        with self.living():
            if self.known and fails(list(self.known)):
                return list(self.known)
            try:
                return find(drawn, fails, settings=bounded, random=Random(self.seed))
            except NoSuchExample:
                return None


def _replace_in_scripts(patch: pytest.MonkeyPatch, old: str, new: str) -> None:
    changed = {}
    for name, script in scripts.load_all().items():
        text = script.text.replace(old, new)
        sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest().encode()
        changed[name] = script if text == script.text else replace(script, text=text, sha=sha)
    assert changed != scripts.load_all(), f"no script has {old!r}"
    patch.setattr(scripts, "load_all", lambda: changed)


def _replace_in_function(patch: pytest.MonkeyPatch, function: Function, old: str, new: str) -> None:
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source, f"{function.__qualname__} has no {old!r}"
    namespace: dict[str, Any] = {}
    exec(compile(source.replace(old, new), "mutant", "exec"), function.__globals__, namespace)
    owner = sys.modules[function.__module__]
    *classes, name = function.__qualname__.split(".")
    patch.setattr(attrgetter(".".join(classes))(owner) if classes else owner, name, namespace[name])
