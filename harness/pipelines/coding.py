"""The code of a pipeline: what a user could write, from a source over bolts to a sink."""

from dataclasses import dataclass
from random import Random
from textwrap import indent

from harness.pipelines import operators
from harness.pipelines.operators import (
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

_BATCHES = ("1", "2", "100", "100", "1 if started else 100")


@dataclass(frozen=True, slots=True)
class Code:
    """The pipeline of a seed. forked: how many operators stand above a stream of two readers."""

    spouts: tuple[str, ...]
    source: str
    queries: tuple[str, ...]
    operators: tuple[Operator, ...]
    features: tuple[str, ...]
    text: str
    forked: int | None


class Coder:
    """Writes the code of a pipeline, for so many records in all of each spout."""

    def __init__(self, chance: Random, records: int) -> None:
        self.chance = chance
        self.careful = chance.random() < 0.5
        self.source = chance.choices(["stream", "track", "load"], [6, 2, 1])[0]
        self.spouts = ("a", "b") if chance.random() < 0.4 else ("a",)
        self.steps = ("first", "last") if chance.random() < 0.6 else ("last",)
        self.records = len(self.spouts) * records
        self.out = chance.random() < 0.3
        self.job = self.source != "track" or len(self.steps) > 1
        self.job = self.job and chance.random() < 0.15
        self.operators: list[Operator] = []
        self.features = [self.source, f"{len(self.spouts)} spouts", f"{len(self.steps)} queries"]
        self.parts: list[str] = []
        self.many = False

    def write(self) -> Code:
        """The code; once."""
        loads = [f"load_{name}" for name in self.spouts] if self.source == "load" else []
        if loads:
            self.parts += [_load(name) for name in self.spouts]
        forked, steps = None, list(self.steps)
        for name in self.steps:
            self._step(name)
            if name == "first" and self.chance.random() < 0.15:
                forked = len(self.operators)
                self.features.append("fork")
                self.parts.append(AUDIT)
                steps.append("audit")
        return Code(
            self.spouts, self.source, (*loads, *steps), tuple(self.operators), tuple(self.features),
            "\n\n".join(self.parts), forked,
        )  # fmt: skip

    def _step(self, name: str) -> None:
        chance, first, last = self.chance, name == self.steps[0], name == self.steps[-1]
        if last and self.job:
            self._job(name, [f'collector.take("{one}")' for one in (self.spouts if first else ["mid"])])
            return
        lines = self._reads() if first else [f"rows = {self._read('mid')}"]
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

    def _reads(self) -> list[str]:
        chance, spouts, source = self.chance, self.spouts, self.source
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

    def _job(self, name: str, takes: list[str]) -> None:
        self.features.append("batch job")
        lines = [
            f'with job(spark, url=URL, topology=TOPOLOGY, name="{name}") as collector:',
            f"    {name}({'.unionByName('.join(takes)}{')' * (len(takes) - 1)}, collector)",
        ]
        self._function(name, last=True)
        self.parts.append(_function(f"start_{name}(started)", lines))

    def _bolt(self, name: str, last: bool) -> None:
        self._function(name, last)
        self.parts[-1] = f'@bolt(url=URL, topology=TOPOLOGY, name="{name}")\n{self.parts[-1]}'

    def _function(self, name: str, last: bool) -> None:
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
            lines.append(f'rows.select("made_of").write.mode("overwrite").json({_file(name)})')
        else:
            lines += self._emit("out" if last else "mid")
        lines.append('crash_point("end")')
        self.parts.append(_function(f"{name}(batch, collector)", lines))

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
            "emit by a function": (
                1,
                [f'collector.emit_map(rows, lambda row: row, "{SCHEMA}", stream="{stream}")'],
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
        known = list(ways)[:4] if self.careful else list(ways)
        [way] = self.chance.choices(known, [ways[one][0] for one in known])
        if way != "emit":
            self.features.append(way)
        return ways[way][1]


def _load(name: str) -> str:
    lines = [f'return write(files("{name}"), "{name}", **spout("{name}"))']
    return _function(f"start_load_{name}(started)", lines)


def _function(signature: str, lines: list[str]) -> str:
    return f"def {signature}:\n{indent(chr(10).join(lines), '    ')}"


def _file(name: str) -> str:
    return f'f"{{SINK}}/{name}-{{collector.key}}"'


AUDIT = """\
@bolt(url=URL, topology=TOPOLOGY, name="audit")
def audit(batch, collector):
    rows = batch.withColumn("made_of", F.expr("transform(made_of, one -> concat(one, '.audit'))"))
    rows.select("made_of").write.mode("overwrite").json(f"{SINK}/audit-{collector.key}")
    crash_point("end")

def start_audit(started):
    return read("mid", subscription="audit").writeStream.foreachBatch(audit)"""
"""A second query that reads the stream in the middle, under a subscription of its own."""
COPY = ".audit"
