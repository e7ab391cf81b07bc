"""A model of a line in a few lines of Python, with which tests compare.

A plan says what a request does: rows that steps make of rows, in any section, and rows that gather. The model
knows no trees, no gates and no groups: it adds up which rows each gather has of a request, and notes what the
steps were given.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Todo = list[list[Any]]
"""Results of a step for a row: ["flow", id, todo], ["gather", number, label], ["fail", n], ["bad"]."""


@dataclass(frozen=True)
class Shape:
    """A line: the tasks of each gather, and where what a gather says of a request goes: "flow" is the next
    section's ordinary step, a number a later gather, 0 nowhere."""

    tasks: tuple[int, ...]
    then: tuple[str | int, ...]

    @classmethod
    def make(cls, chance: random.Random) -> "Shape":
        """One of 1 to 3 gathers."""
        count = chance.randint(1, 3)
        then = [chance.choice(["flow", *range(n + 1, count + 1), 0]) for n in range(1, count + 1)]
        return cls(tuple(chance.choice([1, 2, 3]) for _ in range(count)), tuple(then))


@dataclass
class Plan:
    """The rows that a request makes."""

    name: str
    todo: Todo
    bad: bool = False

    @classmethod
    def make(cls, name: str, shape: Shape, chance: random.Random) -> "Plan":
        """Any: up to some dozens of rows, that fail at times, once or for good."""
        numbers = iter(range(1000))

        def todo(depth: int) -> Todo:
            found: Todo = []
            for _ in range(chance.choice([0, 1, 1, 2, 2, 5])):
                label = f"{name}-{next(numbers)}"
                if depth and chance.random() < 0.4:
                    found.append(["flow", label, todo(depth - 1)])
                else:
                    found.append(["gather", chance.randint(1, len(shape.tasks)), label])
            return found

        plan = cls(name, todo(2), bad=chance.random() < 0.1)
        if plan.bad:
            plan.todo.append(["bad"])
        elif chance.random() < 0.25:
            plan.todo.append(["flow", f"{name}-last", [["fail", chance.randint(1, 2)]]])
        return plan

    def gathered(self, shape: Shape) -> list[Counter[str]]:
        """The labels of the rows that each gather has of the request."""
        counts = [Counter[str]() for _ in shape.tasks]
        left = list(self.todo)
        while left:
            kind, *more = left.pop()
            if kind == "flow":
                left += more[1]
            elif kind == "gather":
                counts[more[0] - 1][more[1]] += 1
        for number, (tasks, then) in enumerate(zip(shape.tasks, shape.then, strict=True), 1):
            to = number + 1 if then == "flow" else int(then)
            if 0 < to <= len(counts):
                counts[to - 1].update({f"said by {number}.{task}": 1 for task in range(tasks)})
        return counts


@dataclass
class LinesModel:
    """Requests of one line, and what was seen of them."""

    shape: Shape
    plans: dict[str, Plan] = field(default_factory=dict)
    seen: dict[tuple[int, int, int], list[Counter[str]]] = field(default_factory=dict)
    """Rows that the task of a gather had of a request when that was complete: id, gather, task."""
    over: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The last outcome of each request, and the id that it had then."""

    def plan(self, chance: random.Random) -> Plan:
        """A new request."""
        one = Plan.make(f"q{len(self.plans)}", self.shape, chance)
        self.plans[one.name] = one
        return one

    def finished(self, request: int, gather: int, task: int, labels: list[str]) -> None:
        """Notes what a task has seen."""
        seen = self.seen.setdefault((request, gather, task), [])
        if Counter(labels) not in seen:
            seen.append(Counter(labels))

    def check_seen(self) -> None:
        """Whatever died, each task was told the same each time."""
        for place, seen in self.seen.items():
            assert len(seen) == 1, (place, seen)

    def ended(self, name: str, status: str, request: int) -> None:
        """Notes an outcome, which may be told again."""
        assert self.over.setdefault(name, (status, request)) == (status, request)
        assert (status == "failed") == self.plans[name].bad, f"{name} {status}"
        if status == "acked":
            self._compare(self.plans[name], request)

    def _compare(self, plan: Plan, request: int) -> None:
        for number, (wanted, tasks) in enumerate(
            zip(plan.gathered(self.shape), self.shape.tasks, strict=True), 1
        ):
            counts = Counter[str]()
            for task in range(tasks):
                seen = self.seen.get((request, number, task), [])
                assert len(seen) == 1, f"{plan.name}: gather {number} was told {seen}"
                counts += seen[0]
            assert counts == wanted, f"{plan.name}: gather {number} had {counts}, not {wanted}"

    def is_over(self) -> bool:
        """True if all requests are over."""
        return self.over.keys() == self.plans.keys()


def dumped(todo: Todo) -> str:
    """A plan as text that rows carry."""
    return json.dumps(todo)
