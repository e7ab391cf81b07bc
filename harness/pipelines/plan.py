"""A pipeline and its story, from a seed: a value that prints as the code that is run."""

from dataclasses import dataclass
from random import Random

from harness.pipelines import operators
from harness.pipelines.coding import COPY, Code, Coder
from harness.pipelines.operators import APART

ATTEMPTS = 5
"""Attempts of a record: more than a story makes fail."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: Spark code that a user could write, and what is done to it.

    code: `source` is "stream" where each spout writes a stream of its name, "track" where the query that
    reads files tracks them, "load" where a query of its own writes files to the stream. Its text defines a
    function `start_<query>` for each query, which is given how often it was started before. story: calls of
    the verbs of `harness.pipelines.story.Story`. puts: records of a spout, from its first number on.
    """

    seed: int
    code: Code
    story: tuple[str, ...]
    puts: int

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of the pipeline, in words."""
        return (*self.code.features, *(one.name for one in self.code.operators))

    @property
    def numbers(self) -> list[int]:
        """The numbers of all records."""
        spouts = range(len(self.code.spouts))
        return [place * APART + number for place in spouts for number in range(self.puts)]

    def expected(self) -> dict[int, frozenset[str]]:
        """Number of a record -> the marks that have to be in the sink when it is acked."""
        return {number: self._marks(number) for number in self.numbers}

    def _marks(self, number: int) -> frozenset[str]:
        found = operators.marks(self.code.operators, number)
        if self.code.forked is not None:
            above = operators.marks(self.code.operators[: self.code.forked], number)
            found |= {mark + COPY for mark in above}
        return found

    def text(self) -> str:
        """The whole as code."""
        reported = f'"""Pipeline {self.seed}: {", ".join(self.names)}."""'
        return "\n\n".join([reported, self.code.text, "\n".join(self.story)]) + "\n"


def pipeline(seed: int) -> Pipeline:
    """The pipeline of a seed."""
    chance = Random(seed)
    times, size = chance.choice([(1, 12), (2, 8), (3, 5)])
    code = Coder(chance, times * size).write()
    return Pipeline(seed, code, tuple(_story(chance, code, times, size)), times * size)


def _story(chance: Random, code: Code, times: int, size: int) -> list[str]:
    lines = ['subscribe("mid", "default")', 'subscribe("mid", "audit")'] if code.forked is not None else []
    for time in range(times):
        lines += [f'put("{name}", {size})' for name in code.spouts]
        for name in code.queries:
            if name.startswith("load_"):
                lines.append(f"run(start_{name})")
            else:
                # A query that reads files would read and track them again without its checkpoint.
                again = code.source != "track" or name != code.queries[0]
                lines += _run(chance, name, time, again)
        lines += chance.choice([["settle()"], ["settle()"], ["settle()", "take_out()"]])
        if chance.random() < 0.3:
            lines.append("expire()")
    if chance.random() < 0.3:
        lines.append("expire()")
    return lines


def _run(chance: Random, name: str, time: int, again: bool) -> list[str]:
    start, how = f"run(start_{name}", chance.random()
    calm = f"{start})"
    if how < 0.35:
        points = ["begin", "end", "end", "task", "failed"]
        return [f'{start}, dies="{chance.choice(points)}")', *([calm] if chance.random() < 0.8 else [])]
    if how < 0.42 and time:
        return [f'keep("{name}")', calm, f'restore("{name}")', calm]
    if how < 0.48:
        return [f'{start}, dies="end")', f'forget_offsets("{name}")', calm]
    if how < 0.52 and again:
        return [calm, f'forget_checkpoint("{name}")']
    if how < 0.75:
        return [f"{start}, stays=True)"]
    if how < 0.8:
        return []  # not yet
    return [calm]
