"""A pipeline and its story, from a seed: a value that prints as the code that is run."""

from dataclasses import dataclass
from random import Random
from textwrap import indent

from tests.pipelines import operators
from tests.pipelines.operators import (
    ANYWHERE,
    APART,
    INSIDE,
    KINDS,
    MISTAKES,
    PLAIN,
    SCHEMA,
    STREAMING,
    Operator,
    Place,
)

ATTEMPTS = 5
"""How often a record is tried: more often than a story makes it fail."""
_BATCHES = ("1", "2", "100", "100", "1 if started else 100")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline: Spark code that a user could write, and what is done to it.

    spouts: their names. source: "stream": each spout writes a stream of its name; "track": files that are
    tracked by the query that reads them; "load": files that a query of its own writes to the stream.
    steps: the queries in their order. operators: all between a source and the sink. code: defines a function
    `start_<step>` for each query, which is given how often it was started before. story: calls of the verbs
    of `tests.pipelines.story.Story`. puts: records of a spout, from its first number on.
    """

    seed: int
    spouts: tuple[str, ...]
    source: str
    steps: tuple[str, ...]
    operators: tuple[Operator, ...]
    features: tuple[str, ...]
    code: str
    story: tuple[str, ...]
    puts: int

    @property
    def numbers(self) -> list[int]:
        """The numbers of all records."""
        return [place * APART + number for place in range(len(self.spouts)) for number in range(self.puts)]

    def expected(self) -> dict[int, frozenset[str]]:
        """Number of a record -> the marks that have to be in the sink when it is acked."""
        return {number: operators.marks(self.operators, number) for number in self.numbers}

    def text(self) -> str:
        """The whole as code."""
        names = ", ".join([*self.features, *(one.name for one in self.operators)])
        told = f'"""Pipeline {self.seed}: {names}."""'
        return "\n\n".join([told, self.code, "\n".join(self.story)]) + "\n"


def pipeline(seed: int) -> Pipeline:
    """The pipeline of a seed."""
    return _Maker(seed).make()


@dataclass(slots=True)
class _Step:
    """A query in the making."""

    name: str
    reads: list[str]
    many: bool
    last: bool
    lines: list[str]
    mode: str = "append"


class _Maker:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.operators: list[Operator] = []
        self.features: list[str] = []
        self.parts: list[str] = []
        self.many = False
        self.out = False
        self.careful = self.chance.random() < 0.5

    def make(self) -> Pipeline:
        chance = self.chance
        source = chance.choices(["stream", "track", "load"], [6, 2, 1])[0]
        spouts = ("a", "b") if chance.random() < 0.4 else ("a",)
        times, size = chance.choice([(1, 12), (2, 8), (3, 5)])
        self.records = len(spouts) * times * size
        steps = ["first", "last"] if chance.random() < 0.6 else ["last"]
        self.out = chance.random() < 0.3
        made = [source, f"{len(spouts)} spouts", f"{len(steps)} queries"]
        self.features += made
        if source == "load":
            self.parts += [_load(name) for name in spouts]
        for name in steps:
            self._step(name, spouts, source, steps)
        story = self._story(spouts, source, steps, times, size)
        return Pipeline(
            self.seed, spouts, source, tuple(steps), tuple(self.operators), tuple(self.features),
            "\n\n".join(self.parts), tuple(story), times * size,
        )  # fmt: skip

    # The code

    def _step(self, name: str, spouts: tuple[str, ...], source: str, steps: list[str]) -> None:
        chance, first, last = self.chance, name == steps[0], name == steps[-1]
        lines = self._reads(name, spouts, source) if first else [f"rows = {self._read('mid')}"]
        mode = "append"
        if chance.random() < (0.5 if first else 0.2):
            kinds = STREAMING if not self.careful and chance.random() < 0.6 else ANYWHERE
            for number in range(chance.choice([1, 1, 2])):
                one = self._draw(kinds if number == 0 else ANYWHERE, name)
                later = one.name in PLAIN and chance.random() < 0.4
                lines += ["if started:", *(f"    {line}" for line in one.lines)] if later else one.lines
                if later:
                    self.features.append("another plan")
                mode = one.mode if one.mode != "append" else mode
        if not last and chance.random() < 0.25:
            self.features.append("written directly")
            ending = [f'return write(rows, "mid").outputMode("{mode}")']
        else:
            self._bolt(name, last)
            ending = [f'return rows.writeStream.foreachBatch({name}).outputMode("{mode}")']
        self.parts.append(_function(f"start_{name}(started)", [*lines, *ending]))

    def _read(self, stream: str) -> str:
        batches = self.chance.choice(_BATCHES)
        if not self.careful and self.chance.random() < 0.12:
            self.features.append("read without _acker")
            self.many = False
            return f'read("{stream}", schema="{SCHEMA}")'
        if "started" in batches:
            self.features.append("smaller batches")
        return f'read("{stream}", max_segments={batches})'

    def _reads(self, name: str, spouts: tuple[str, ...], source: str) -> list[str]:
        chance = self.chance
        if source == "track":
            lines = [f'{one} = track(files("{one}"), **spout("{one}"))' for one in spouts]
        else:
            lines = [f"{one} = {self._read(one)}" for one in spouts]
        if len(spouts) == 1:
            return [*lines, "rows = a"]
        how = chance.choice(
            ["union", "union", "set", "set"] if self.careful else ["set", "set", "set", "join"]
        )
        self.features.append({"set": "union over a set", "join": "join of streams"}.get(how, how))
        if how == "union":
            return [*lines, "rows = a.unionByName(b)"]
        if how == "set":
            return [
                *lines,
                "both = [a, b] if started % 2 == 0 else [b, a]  # the order of a set",
                "rows = both[0].unionByName(both[1])",
            ]
        self.many = True
        return [
            *lines,
            'left, right = a.alias("left"), b.alias("right")',
            f'partners = F.expr("left.id + {APART} = right.id")',
            "rows = left.join(right, partners).select(",
            '    "left.id", "left.k", "left.at",',
            '    F.greatest("left.attempt", "right.attempt").alias("attempt"),',
            '    F.concat("left.made_of", "right.made_of").alias("made_of"),',
            '    F.array("left._acker", "right._acker").alias("_acker"),',
            ")",
        ]

    def _draw(self, kinds: tuple[tuple[int, operators.Maker], ...], name: str) -> Operator:
        place = Place(name, self.many, self.records, len(self.operators))
        one = operators.draw(self.chance, kinds, place)
        self.operators.append(one)
        if one.many is not None:
            self.many = one.many
        return one

    def _bolt(self, name: str, last: bool) -> None:
        chance, lines = self.chance, ["rows = batch"]
        if chance.random() < 0.5:
            lines.append('crash_point("begin")')
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            mistaken = not self.careful and chance.random() < 0.3
            one = self._draw(MISTAKES if mistaken else chance.choice([ANYWHERE, INSIDE, INSIDE]), name)
            lines += one.lines
        if chance.random() < 0.5 and not any(one.name.startswith("once") for one in self.operators):
            bad = f"attempt = 1 and k = {chance.randrange(KINDS)}"
            self.features.append(f"{name} fails some")
            lines += [
                f'collector.fail(rows.filter("{bad}"), "not at the first time")',
                f'rows = rows.filter("not ({bad})")',
            ]
        if last and not self.out:
            lines.append(f'rows.select("made_of").write.mode("overwrite").json({self._file(name)})')
        else:
            lines += self._emit("out" if last else "mid")
        lines.append('crash_point("end")')
        decorated = f'@bolt(url=URL, topology=TOPOLOGY, name="{name}")'
        self.parts.append(f"{decorated}\n{_function(f'{name}(batch, collector)', lines)}")

    @staticmethod
    def _file(name: str) -> str:
        return f'f"{{SINK}}/{name}-{{collector.batch_id}}"'

    def _emit(self, stream: str) -> list[str]:
        half = f'collector.emit(rows.filter(f"k % 2 = {{part}}"), stream="{stream}")'
        ways: dict[str, tuple[int, list[str]]] = {
            "emit": (6, [f'collector.emit(rows, stream="{stream}")']),
            "emit in parts": (3, ["for part in (0, 1):", f"    {half}"]),
            "emit in threads": (
                2,
                [
                    "with ThreadPoolExecutor() as pool:",
                    f"    list(pool.map(lambda part: {half}, (0, 1)))",
                ],
            ),
            "thread not awaited": (
                1,
                [f'Thread(target=lambda: collector.emit(rows, stream="{stream}")).start()'],
            ),
            "error of an emit is swallowed": (
                1,
                [
                    "odd = F.expr(\"if(k = 3 and attempt = 1, raise_error('odd'), k)\")",
                    "try:",
                    f'    collector.emit(rows.withColumn("k", odd.cast("int")), stream="{stream}")',
                    "except Exception as error:",
                    '    print("not emitted:", error)',
                ],
            ),
            "emit without anchors": (1, [f'collector.emit(rows.drop("_acker"), stream="{stream}")']),
            "written in a bolt": (
                1,
                [f'rows.write.format("acker").options(**options("{stream}")).mode("append").save()'],
            ),
        }
        known = list(ways)[:3] if self.careful else list(ways)
        [way] = self.chance.choices(known, [ways[one][0] for one in known])
        if way != "emit":
            self.features.append(way)
        return ways[way][1]

    # The story

    def _story(
        self, spouts: tuple[str, ...], source: str, steps: list[str], times: int, size: int
    ) -> list[str]:
        chance = self.chance
        lines: list[str] = []
        for time in range(times):
            lines += [f'put("{name}", {size})' for name in spouts]
            if source == "load":
                lines += [f"run(start_load_{name})" for name in spouts]
            if time == 0 and chance.random() < 0.15:
                lines.append("settle()")
            for name in steps:
                lines += self._run(name, time)
            lines += chance.choice([["settle()"], ["settle()"], ["settle()", "take_out()"]])
            if chance.random() < 0.3:
                lines.append("expire()")
        if chance.random() < 0.3:
            lines.append("expire()")
        return lines

    def _run(self, name: str, time: int) -> list[str]:
        chance, start = self.chance, f"run(start_{name}"
        calm = f"{start})"
        how = chance.random()
        if how < 0.35:
            points = ["begin", "end", "end", "task"]
            return [f'{start}, dies="{chance.choice(points)}")', *([calm] if chance.random() < 0.8 else [])]
        if how < 0.42 and time:
            return [f'keep("{name}")', calm, f'restore("{name}")', calm]
        if how < 0.48:
            return [f'{start}, dies="end")', f'forget_offsets("{name}")', calm]
        if how < 0.75:
            return [f"{start}, stays=True)"]
        if how < 0.8:
            return []  # not yet
        return [calm]


def _load(name: str) -> str:
    lines = [f'return write(files("{name}"), "{name}", **spout("{name}"))']
    return _function(f"start_load_{name}(started)", lines)


def _function(signature: str, lines: list[str]) -> str:
    return f"def {signature}:\n{indent(chr(10).join(lines), '    ')}"
