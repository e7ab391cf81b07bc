"""Operators between a source and a sink: as a user writes them, and what they make of a record.

A row has the columns id, k, at, attempt, made_of and `_acker`. made_of lists the marks of what went into the
row, at first the record's number. An operator either keeps all marks, or drops marks of records by their k
(k = number % KINDS, so that all rows of a record go), or makes copies, which get a suffix each. So plain
Python knows which marks of a record have to reach the sink, whatever Spark does in between, and in which
order. Operators that are mistakes keep all marks, too, as far as their author can see.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

KINDS = 5
"""Values of k."""
APART = 1_000
"""The distance from the number of a record of the first spout to its partner's of the second."""
SCHEMA = "id bigint, k int, at timestamp, attempt int, made_of array<string>"
"""The columns of a row, but for `_acker`."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator. lines: its code, on the DataFrame `rows`.

    drops: the values of k whose rows go. copies: the suffixes of the copies that it makes. many: whether
    `_acker` is an array afterwards, None: as before. mode: the output mode that a query needs for it.
    """

    name: str
    lines: tuple[str, ...]
    drops: frozenset[int] = frozenset()
    copies: tuple[str, ...] = ("",)
    many: bool | None = None
    mode: str = "append"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an operator. step: the bolt or query. many: whether `_acker` is an array there.

    records: how many there will be of all spouts.
    """

    step: str
    many: bool
    records: int
    number: int


Maker: TypeAlias = Callable[[Random, Place], Operator]


def marks(operators: tuple[Operator, ...], number: int) -> frozenset[str]:
    """The marks of a record that have to reach the sink."""
    found = {str(number)}
    for one in operators:
        if number % KINDS in one.drops:
            return frozenset()
        found = {mark + copy for mark in found for copy in one.copies}
    return frozenset(found)


def own(mark: str) -> int:
    """The number of the record that a mark is of."""
    return int(mark.partition(".")[0])


def _aggregates(many: bool, *, anchors: str = "") -> tuple[str, ...]:
    wanted = anchors or ('F.flatten(F.collect_list("_acker"))' if many else 'F.collect_list("_acker")')
    named = '.alias("_acker")' if not anchors.endswith("# no alias") else ""
    return (
        '    F.min("id").alias("id"), F.max("at").alias("at"), F.max("attempt").alias("attempt"),',
        '    F.flatten(F.collect_list("made_of")).alias("made_of"),',
        f"    {wanted.removesuffix('# no alias')}{named},",
        ")",
    )


# Anywhere


def _filter(chance: Random, place: Place) -> Operator:
    gone = chance.randrange(KINDS)
    return Operator("filter", (f'rows = rows.filter("k <> {gone}")',), drops=frozenset({gone}))


def _column(chance: Random, place: Place) -> Operator:
    return Operator("column", ('rows = rows.withColumn("id", F.col("id") + F.lit(0))',))


def _sql(chance: Random, place: Place) -> Operator:
    acker = chance.choice(["_acker", "_acker", "_ACKER"])
    view = f"rows_{place.step}_{place.number}"
    return Operator(
        "SQL" if acker == "_acker" else "SQL in capitals",
        (
            f'rows.createOrReplaceTempView("{view}")',
            f'rows = rows.sparkSession.sql("SELECT id, k, at, attempt, made_of, {acker} FROM {view}")',
        ),
    )


def _repartition(chance: Random, place: Place) -> Operator:
    how = chance.choice(["repartition(3)", 'repartition(2, "k")', "coalesce(1)", "repartition(1)"])
    return Operator("repartition", (f"rows = rows.{how}",))


def _explode(chance: Random, place: Place) -> Operator:
    return Operator(
        "explode",
        (
            'rows = rows.withColumn("copy", F.explode(F.array(F.lit(".a"), F.lit(".b"))))',
            'rows = rows.withColumn("made_of", F.expr("transform(made_of, one -> concat(one, copy))"))',
            'rows = rows.drop("copy")',
        ),
        copies=(".a", ".b"),
    )


def _halves(chance: Random, place: Place) -> Operator:
    return Operator("union", ('rows = rows.filter("k % 2 = 0").unionByName(rows.filter("k % 2 = 1"))',))


def _pandas(chance: Random, place: Place) -> Operator:
    return Operator("pandas", ("rows = rows.mapInPandas(lambda frames: frames, rows.schema)",))


def _flaky(chance: Random, place: Place) -> Operator:
    return Operator("pandas that may die", ("rows = rows.mapInPandas(flaky, rows.schema)",))


def _lookup(chance: Random, place: Place) -> Operator:
    how = chance.choice(["inner", "left"])
    return Operator(
        "join with a table",
        (
            f'names = rows.sparkSession.range({KINDS}).selectExpr("cast(id as int) AS k", "\'x\' AS name")',
            f'rows = rows.join(names, "k", "{how}").drop("name")',
        ),
    )


ANYWHERE: tuple[tuple[int, Maker], ...] = (
    (3, _filter),
    (1, _column),
    (2, _sql),
    (3, _repartition),
    (2, _explode),
    (2, _halves),
    (2, _pandas),
    (2, _flaky),
    (2, _lookup),
)
"""Weights of operators that may stand in a query and in a bolt's function."""


PLAIN = frozenset({"column", "repartition", "pandas", "join with a table"})
"""Names of operators that change no row: a query may have one from its second start on."""


# In a query


def _deduplicate(chance: Random, place: Place) -> Operator:
    how, by = chance.choice(
        [
            ("", '["id", "made_of"]'),
            ("", '["id", "made_of", "attempt"]'),
            ("WithinWatermark", '["id", "made_of"]'),
        ]
    )
    before = '.withWatermark("at", "1 hour")' if how else ""
    return Operator(
        "deduplication by attempts" if "attempt" in by else "deduplication",
        (f"rows = rows{before}.dropDuplicates{how}({by})",),
    )


def _limit(chance: Random, place: Place) -> Operator:
    return Operator("limit", (f"rows = rows.limit({place.records})",))


def _watermark(chance: Random, place: Place) -> Operator:
    return Operator("watermark", ('rows = rows.withWatermark("at", "1 minute")',))


def _windows(chance: Random, place: Place) -> Operator:
    return Operator(
        "windowed aggregate",
        (
            'rows = rows.withWatermark("at", "1 minute")',
            'rows = rows.groupBy(F.window("at", "10 minutes"), "k").agg(',
            *_aggregates(place.many),
            'rows = rows.drop("window")',
        ),
        many=True,
    )


def _totals(chance: Random, place: Place) -> Operator:
    return Operator(
        "aggregate over batches",
        ('rows = rows.groupBy("k").agg(', *_aggregates(place.many)),
        many=True,
        mode="update",
    )


STREAMING: tuple[tuple[int, Maker], ...] = (
    (3, _deduplicate),
    (2, _limit),
    (1, _watermark),
    (2, _windows),
    (1, _totals),
)
"""Operators that may stand in a query only: Spark keeps state for them."""


# In a bolt's function


def _groups(chance: Random, place: Place) -> Operator:
    return Operator("aggregate", ('rows = rows.groupBy("k").agg(', *_aggregates(place.many)), many=True)


def _groups_without_alias(chance: Random, place: Place) -> Operator:
    anchors = 'F.collect_list("_acker")# no alias'
    return Operator(
        "aggregate without alias",
        ('rows = rows.groupBy("k").agg(', *_aggregates(place.many, anchors=anchors)),
    )


def _outer_join(chance: Random, place: Place) -> Operator:
    """Of halves without a partner: all that comes of it has a null on one side."""
    if place.many:
        sides = ", ".join(f'F.coalesce("{side}._acker", F.array())' for side in ("left", "right"))
        return _joined("outer join", f"F.concat({sides})")
    return _joined("outer join", 'F.array_compact(F.array("left._acker", "right._acker"))')


def _outer_join_with_nulls(chance: Random, place: Place) -> Operator:
    anchors = (
        'concat("left._acker", "right._acker")' if place.many else 'array("left._acker", "right._acker")'
    )
    return _joined("outer join with nulls", f"F.{anchors}")


def _joined(name: str, anchors: str) -> Operator:
    return Operator(
        name,
        (
            'left, right = rows.filter("k < 2").alias("left"), rows.filter("k >= 2").alias("right")',
            'both = [F.coalesce(f"left.{name}", f"right.{name}").alias(name) for name in COLUMNS[:-1]]',
            'joined = left.join(right, F.col("left.id") == F.col("right.id"), "full")',
            f'rows = joined.select(*both, {anchors}.alias("_acker"))',
        ),
        many=True,
    )


def _deduplicate_batch(chance: Random, place: Place) -> Operator:
    return Operator("deduplication in a bolt", ('rows = rows.dropDuplicates(["id", "made_of", "attempt"])',))


def _numbered(chance: Random, place: Place) -> Operator:
    return Operator(
        "window function",
        (
            'number = F.row_number().over(Window.partitionBy("k").orderBy("id"))',
            'rows = rows.withColumn("number", number).filter("number > 0").drop("number")',
        ),
    )


def _cache(chance: Random, place: Place) -> Operator:
    return Operator("cache", ("rows = rows.cache()",))


def _order(chance: Random, place: Place) -> Operator:
    return Operator("order and limit", (f'rows = rows.orderBy("id").limit({100 * place.records})',))


def _pandas_groups(chance: Random, place: Place) -> Operator:
    return Operator(
        "pandas groups", ('rows = rows.groupBy("k").applyInPandas(lambda frame: frame, rows.schema)',)
    )


def _pandas_groups_with_headings(chance: Random, place: Place) -> Operator:
    """A row without a tree among each group's."""
    return Operator(
        "pandas groups with a null",
        (
            f"headings = rows.sparkSession.range({KINDS}).selectExpr(",
            '    "-1L AS id", "cast(id as int) AS k", "timestamp\'2026-01-01\' AS at", "9 AS attempt",',
            '    "cast(array() as array<string>) AS made_of",',
            ")",
            "rows = rows.unionByName(headings, allowMissingColumns=True)",
            'rows = rows.groupBy("k").applyInPandas(lambda frame: frame, rows.schema)',
        ),
    )


def _map(chance: Random, place: Place) -> Operator:
    bad = chance.randrange(KINDS)
    return Operator(
        "function per record",
        (
            "def each(row):",
            f'    if row["k"] == {bad} and row["attempt"] == 1:',
            '        raise ValueError("not at the first time")',
            "    return row",
            "",
            f'rows = collector.map(rows, each, "{SCHEMA}")',
        ),
    )


def _hold(chance: Random, place: Place) -> Operator:
    young, name = f"attempt = 1 and k = {chance.randrange(KINDS)}", f"held{place.number}"
    return Operator(
        "hold",
        (
            f'before = collector.held(rows.schema, "{name}")',
            f'collector.hold(rows.filter("{young}"), "{name}")',
            f'rows = rows.filter("not ({young})").unionByName(before)',
        ),
    )


def _side(chance: Random, place: Place) -> Operator:
    return Operator("sample", (f'collector.emit(rows.sample(0.5, seed={place.number}), stream="side")',))


def _look(chance: Random, place: Place) -> Operator:
    how = chance.choice(["rows.isEmpty()", "not rows.take(1)", "not rows.count()", "rows.first() is None"])
    return Operator("look", (f"if {how}:", "    return"))


def _once(chance: Random, place: Place) -> Operator:
    return Operator("once", ('rows = collector.once(rows, key=["id", "made_of"])',), many=True)


def _once_lost(chance: Random, place: Place) -> Operator:
    return Operator(
        "once without its column",
        ('rows = collector.once(rows, key=["id", "made_of"]).select(*COLUMNS)',),
        many=True,
    )


INSIDE: tuple[tuple[int, Maker], ...] = (
    (4, _groups),
    (3, _outer_join),
    (1, _deduplicate_batch),
    (1, _numbered),
    (2, _cache),
    (1, _order),
    (2, _pandas_groups),
    (2, _map),
    (2, _hold),
    (2, _side),
    (2, _look),
    (2, _once),
)
"""Operators that may stand in a bolt's function only."""

MISTAKES: tuple[tuple[int, Maker], ...] = (
    (1, _groups_without_alias),
    (2, _outer_join_with_nulls),
    (2, _pandas_groups_with_headings),
    (1, _once_lost),
)
"""Mistakes in a bolt's function that lose trees or their anchors."""


def draw(chance: Random, makers: tuple[tuple[int, Maker], ...], place: Place) -> Operator:
    """One of several, as often as they say."""
    [maker] = chance.choices([one for _, one in makers], [often for often, _ in makers])
    return maker(chance, place)
