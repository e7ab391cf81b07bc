"""The check of the house's English (.ci/english.py), on files with and without faults."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("english", ROOT / ".ci" / "english.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(ROOT / ".ci"))  # its folder has the modules that it imports
    sys.modules["english"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


ENGLISH = load()
WHO, THAT, WHAT = "who", "that", "what"  # this file is checked, too: none of its texts has a fault


def faults(root: Path, files: dict[str, str], *paths: str) -> list[str]:
    """Returns the faults of files in a folder: file, line and rule of each."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = ENGLISH.file_faults(root, [root / path for path in paths])
    return sorted(f"{fault.place} {fault.rule}" for fault in found)


@pytest.mark.parametrize("word", ["What", "Whether", "how", "Where,", "Those", "As", "Whose"])
def test_a_docstring_that_begins_without_its_subject_is_a_fault(tmp_path: Path, word: str) -> None:
    text = f'"""{word} it is."""\nx = 1\n"""{word} x is."""\n\n\nasync def f():\n    """{word} f is."""\n'
    assert faults(tmp_path, {"acker/a.py": text}) == [f"acker/a.py:{line} head" for line in (1, 3, 7)]


@pytest.mark.parametrize(
    "summary", ["Return True if x.", "The commits of a writer.", "Whatsoever", "Asks again."]
)
def test_a_docstring_that_begins_with_a_verb_or_a_noun_is_none(tmp_path: Path, summary: str) -> None:
    assert faults(tmp_path, {"acker/a.py": f'"""{summary}"""\ntext = "What?"\n'}) == []


@pytest.mark.parametrize(
    "phrase",
    [
        f"A lock for {WHO} asks.",
        f"Read by {WHO}ever ticks.",
        f"{WHO.title()}ever ticks reads it.",
        f"It is told to\n{WHO}m it hurts.",
        f"It is read. {WHO.title()} ticks asks.",
        f"It is read: {WHO} ticks asks.",
    ],
)
@pytest.mark.parametrize(
    ("file", "text", "line", "mark"),
    [
        ("acker/a.py", 'x = 1\n\n\ndef f():\n    """Reads.\n\n    {}\n    """\n', 7, ""),
        ("acker/a.py", "x = 1\ny = '''{}'''\n", 2, ""),
        ("acker/a.py", "x = 1\ny = f'''{{x}}. {}'''\n", 2, ""),
        ("acker/a.py", "x = 1\n# {}\n", 2, "# "),
        ("docs/a.md", "# Title\n\nIt is. {}\n", 3, ""),
        ("lua/a.lua", "local x\n-- It is. {}\n", 2, "-- "),
        ("dashboard/src/a.tsx", "let x\n// It is. {}\n", 2, "// "),
    ],
)
def test_a_role_without_a_noun_is_a_fault_in_every_kind_of_text(
    tmp_path: Path, phrase: str, file: str, text: str, line: int, mark: str
) -> None:
    lines = text.format(phrase.replace("\n", f"\n{mark}"))
    assert faults(tmp_path, {file: lines}) == [f"{file}:{line} role"]


@pytest.mark.parametrize(
    "phrase",
    [
        f"{THAT} of a tree",
        "those\n# of a tree",
        f"{THAT} which is read",
        f"{WHAT} is held",
        f"{WHAT.title()} was there",
    ],
)
def test_a_pronoun_in_the_place_of_a_thing_is_a_fault(tmp_path: Path, phrase: str) -> None:
    text = f"x = 1\n# It reads {phrase}.\ny = 2\n"
    assert faults(tmp_path, {"acker/a.py": text}) == ["acker/a.py:2 noun"]


@pytest.mark.parametrize(
    "sentence",
    [
        f"A caller {WHO} asks twice gets an answer.",
        f"{WHO.title()} may read?",
        f"It does {THAT} of course.",
        f"The trees {THAT} the spout tracks.",
        "A record whose tree has ended.",
    ],
)
def test_plain_sentences_with_the_same_words_are_none(tmp_path: Path, sentence: str) -> None:
    assert faults(tmp_path, {"acker/a.py": f"# {sentence}\n", "docs/a.md": f"{sentence}\n"}) == []


def test_phrases_do_not_run_from_code_to_code(tmp_path: Path) -> None:
    text = f"{THAT} = of = 1\nfor {WHO} in ():\n    print({THAT}, of)  # {THAT}\nx = [{THAT}]\n# of course\n"
    assert faults(tmp_path, {"acker/a.py": text}) == []


LONG = """
def f():
    {} = 1
    x = 2
    y = 3
    return {}
"""


@pytest.mark.parametrize(
    "text",
    [
        LONG.format("one", "one"),
        f"class A:\n    if True:{LONG.replace(chr(10), chr(10) + '        ').format('own', 'own')}",
        LONG.format("found", "[found for x in y]"),
        "\ndef f():\n    def known():\n        return 1\n\n    return known\n",
        "\ndef f(\n    what,\n    x,\n    y,\n):\n    return what\n",
        "\nasync def f():\n    def g(made):\n        x = 1\n        y = 2\n        return made\n",
    ],
)
def test_a_vague_name_that_lives_for_more_than_three_lines_is_a_fault(tmp_path: Path, text: str) -> None:
    [fault] = faults(tmp_path, {"api/a.py": text})
    assert fault.endswith(" name")


@pytest.mark.parametrize(
    "text",
    [
        LONG.format("segment", "segment"),
        LONG.format("one", "one").replace("    y = 3\n", ""),
        "x = [one for one in y]\n\n\n\n\none = 1\n",
        "\ndef f():\n    return [one for one in x]\n\n\ndef g():\n    return [one for one in x]\n",
        "\ndef made():\n    x = 1\n    y = 2\n    return made\n",
        "\ndef f(x):\n    x.found = 1\n    y = 2\n    z = 3\n    return x.found\n",
    ],
)
def test_a_name_of_a_thing_and_a_short_life_are_none(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, {"acker/a.py": text, "tests/a.py": LONG.format("one", "one")}) == []


FACE = 'from acker.work import Work, work\n\n__all__ = ["Work", "work"]\n'
GOOD = '''
from acker.base import Base


class Work(Base):
    """Some work.

    Args:
        size: Rows at most.
        **settings: The rest.
    """

    def __init__(self, size: int, *, _inner: int = 0, **settings: int) -> None:
        self._size = size

    @property
    def size(self) -> int:
        """Rows."""
        return self._size

    def left(self) -> int:
        """Counts rows.

        Returns:
            Rows that are left.
        """
        return 1

    def _hidden(self, x: int) -> int:
        """Has no sections."""
        return x


def work(name: str, size: int) -> Work:
    """Returns new work.

    Args:
        name: Its name.
        size: Rows at most,
            from 1: no work has none.

    Raises:
        ValueError: The size is 0.
    """
    if not size:
        raise ValueError(name)
    return Work(size)
'''
BASE = '''
from dataclasses import dataclass


@dataclass
class Base:
    """A base.

    Attributes:
        a: Listed.
    """

    a: int
    b: int
    """Has a docstring."""
    c: Annotated[int, "Has a text."]
    e: int = number(1, "Has another text.")
    _d: int
'''


def test_public_names_that_say_everything_have_no_fault(tmp_path: Path) -> None:
    files = {"acker/__init__.py": FACE, "acker/work.py": GOOD, "acker/base.py": BASE}
    assert faults(tmp_path, files) == []


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("        size: Rows at most.\n", "", "args"),
        ("        **settings: The rest.\n", "", "args"),
        ("        name: Its name.\n", "        name: Its name.\n        other: Not there.\n", "args"),
        ("        Returns:\n            Rows that are left.\n", "", "returns"),
        ("        ValueError: The size is 0.\n", "        TypeError: The size is 0.\n", "raises"),
        ('"""Counts rows.\n', '"""Counts rows. Raises StoreError.\n', "raises"),
        ("        a: Listed.\n", "", "fields"),
        ('    """Has a docstring."""\n', "", "fields"),
        ('Annotated[int, "Has a text."]', "Annotated[int, Positive]", "fields"),
        ('number(1, "Has another text.")', 'number(1, "column")', "fields"),
    ],
)
def test_public_names_that_leave_something_out_have_a_fault(
    tmp_path: Path, old: str, new: str, rule: str
) -> None:
    assert old in GOOD + BASE
    files = {
        "acker/__init__.py": FACE,
        "acker/work.py": GOOD.replace(old, new),
        "acker/base.py": BASE.replace(old, new),
    }
    assert [fault.split()[1] for fault in faults(tmp_path, files)] == [rule]


def test_a_method_may_refer_to_a_function_that_says_everything(tmp_path: Path) -> None:
    method = GOOD.replace(
        "    def _hidden",
        """    def make(self, name: str, size: int, more: int) -> "Work":
        '''Makes work. Arguments and errors: see `acker.work`.'''
        raise ValueError(name)

    def _hidden""",
    )
    files = {"acker/__init__.py": FACE, "acker/work.py": method, "acker/base.py": BASE}
    assert faults(tmp_path, files) == ["acker/work.py:29 args"]  # `more`, which is not there


def test_paths_narrow_the_check(tmp_path: Path) -> None:
    files = {
        "acker/__init__.py": FACE,
        "acker/work.py": GOOD.replace("        size: Rows at most.\n", ""),
        "acker/base.py": BASE,
        "acker/other.py": '"""What."""\n',
    }
    assert faults(tmp_path, files, "acker/work.py") == ["acker/work.py:12 args"]
    assert faults(tmp_path, {}, "acker/other.py") == ["acker/other.py:1 head"]
    assert faults(tmp_path, {}, "acker") == ["acker/other.py:1 head", "acker/work.py:12 args"]


def test_the_program_ends_with_1_if_there_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = ROOT / "tests" / "project" / "test_english.py"
    assert ENGLISH.main([str(bad)]) == 0
    assert "no fault" in capsys.readouterr().out
    (tmp_path / "acker").mkdir()
    (tmp_path / "acker" / "a.py").write_text('"""What."""\n')
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    run = subprocess.run(
        [sys.executable, str(tmp_path / ".ci" / "english.py")], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.splitlines()[0]) == (1, "acker/a.py:1: head: What.")
