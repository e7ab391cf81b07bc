"""Checks the house's English, and the docstrings of what the public faces export.

    uv run --no-sync python .ci/english.py [PATH ...]     # all, or some folders and files

Prints a line for each fault: file and line, the rule, the words. Ends with 1 if there is a fault. Ruff checks
the sections that a docstring has (D417); a public name without them is found here.

| rule | forbids or demands |
| --- | --- |
| head | a docstring begins with a verb or a noun, and not with a word of `HEADLESS` |
| role | a role has a noun, "the caller"; no sentence begins with "who", and no preposition stands before it |
| noun | a thing has a noun, "the vectors of a tree"; no pronoun stands for it |
| name | a local name of acker or api that is used over more than three lines names a thing (local_names.py) |
| args | the parameters of public functions and constructors have a line each in `Args:`, and only they |
| fields | the fields of public dataclasses have a docstring, a text beside their type, or `Attributes:` |
| returns | a public function says what it returns: in `Returns:`, or by its summary |
| raises | a public function lists the errors that it raises in `Raises:` |
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from local_names import vague_names

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "acker",
    "api",
    "lua",
    "tests",
    "harness",
    "examples",
    "benchmarks",
    "docs",
    "dashboard",
    "deploy",
    ".ci",
)
NAMED = ("acker/", "api/")
FACES = ("acker", "acker.spark", "acker.streams", "acker.lines", "acker.drpc", "acker.testing")
HEADLESS = re.compile(
    r"\W*(?:what|who(?:m|se|ever)?|which|whichever|whether|how|where|why|when|that|those|as)\b", re.IGNORECASE
)
ROLE = re.compile(
    r"\b(?:for|of|to|by|from|with|than|against|without)\s+who(?:m|ever|mever)?\b"
    r"|\bwho(?:m)?ever\b"
    r"|(?:\A\s*|[.:;]\s+)who\s[^.:;?]*(?=[.:;]|\Z)",
    re.IGNORECASE,
)
NOUN = re.compile(
    r"\b(?:that|those)\s+of\b(?!\s+course\b)"
    r"|\bthose\s+(?:who|that|which)\b"
    r"|\bthat\s+which\b"
    r"|\bwhat\s+(?:is|was|are|were)\s+(?:held|there|taken)\b",
    re.IGNORECASE,
)
PHRASES = {"role": ROLE, "noun": NOUN}


@dataclass(frozen=True)
class Fault:
    """A place where a rule is broken."""

    place: str
    words: str
    rule: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.words}"


def main(arguments: list[str] | None = None) -> int:
    """Prints the faults that the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(description="Checks the house's English.")
    parser.add_argument("paths", nargs="*", type=Path, help="folders and files; all where none is given")
    parser.add_argument("--rules", help="only these rules, with commas between them")
    options = parser.parse_args(arguments)
    rules = options.rules.split(",") if options.rules else None
    count = 0
    for fault in file_faults(ROOT, options.paths):
        if rules is None or fault.rule in rules:
            print(fault)
            count += 1
    print(f"English: {count} faults" if count else "English: no fault")
    return 1 if count else 0


def file_faults(root: Path, paths: list[Path]) -> Iterator[Fault]:
    """Yields the faults of the files of a tree, and of its public names."""
    chosen = [path.resolve() for path in paths]
    files = {file.resolve() for file in _files(root, chosen)}
    for file in sorted(files):
        text = file.read_text(encoding="utf-8")
        place = file.relative_to(root).as_posix()
        tree = ast.parse(text) if file.suffix == ".py" else None
        pieces = _python_texts(tree, text) if tree else [(1, _plain(text))]
        if tree:
            yield from head_faults(place, tree)
            if place.startswith(NAMED):
                yield from (Fault(f"{place}:{line}", words, "name") for line, words in vague_names(tree))
        yield from phrase_faults(place, pieces)
    for fault in face_faults(root):
        if not chosen or (root / fault.place.partition(":")[0]).resolve() in files:
            yield fault


def _files(root: Path, chosen: list[Path]) -> Iterator[Path]:
    kinds = {".py", ".lua", ".ts", ".tsx", ".md"}
    skipped = {"node_modules", "__pycache__", "dist"}
    for start in chosen or [*root.glob("*.md"), *root.glob("*.py"), *(root / name for name in FOLDERS)]:
        for file in [start] if start.is_file() else start.rglob("*"):
            inner = file.relative_to(root).parts
            if file.suffix in kinds and file.is_file() and not skipped.intersection(inner):
                yield file


# Words


def head_faults(place: str, tree: ast.Module) -> Iterator[Fault]:
    """Yields the docstrings of a module, its attributes among them, whose first word has no noun."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = str(node.value.value)
            if HEADLESS.match(text):
                yield Fault(f"{place}:{node.lineno}", " ".join(text.split()[:6]), "head")


def phrase_faults(place: str, pieces: Iterable[tuple[int, str]]) -> Iterator[Fault]:
    """Yields the phrases in a file's texts that name a role or a thing by a pronoun.

    Args:
        place: The file.
        pieces: Its texts, each with the number of its first line.
    """
    for start, piece in pieces:
        for rule, phrase in PHRASES.items():
            for match in phrase.finditer(piece):
                line = start + piece.count(
                    "\n", 0, match.start() + len(match[0]) - len(match[0].lstrip(".:; \n"))
                )
                before, after = piece[: match.start()].split()[-3:], piece[match.end() :].split()[:3]
                yield Fault(f"{place}:{line}", " ".join([*before, *match[0].split()[:6], *after]), rule)


def _plain(text: str) -> str:
    """Returns text whose marks of comments and emphasis are spaces, so that sentences run over lines."""
    return re.sub(r"^[ \t]*(?:--+|//+|\*+|>)|\*\*", lambda mark: " " * len(mark[0]), text, flags=re.M)


def _python_texts(tree: ast.Module, text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments and the strings of Python code, each with the number of its first line."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(str(part) for part in parts)
    block: list[str] = []
    last = 0
    for number, line in enumerate(_comments(text), 1):
        if line is not None:
            block.append(line)
            last = number
        elif block:
            yield last - len(block) + 1, "\n".join(block)
            block = []
    if block:
        yield last - len(block) + 1, "\n".join(block)


def _comments(text: str) -> list[str | None]:
    """Returns the comment on each line of Python code, and None for a line without."""
    comments: list[str | None] = [None] * len(text.splitlines())
    if "#" in text:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments[token.start[0] - 1] = token.string.lstrip("#")
    return comments


# Public names


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Modules:
    """The modules below a root, parsed as they are asked for, and the definitions of their names."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parsed: dict[str, ast.Module | None] = {}

    def path(self, module: str) -> Path:
        """Returns the file of a module."""
        path = self._root.joinpath(*module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def file(self, module: str) -> str:
        """Returns the file of a module as text, relative to the root."""
        return self.path(module).relative_to(self._root).as_posix()

    def parse(self, module: str) -> ast.Module | None:
        """Returns a module's tree; None for a module that does not lie below the root."""
        if module not in self._parsed:
            path = self.path(module)
            self._parsed[module] = ast.parse(path.read_text(encoding="utf-8")) if path.is_file() else None
        return self._parsed[module]

    def exports(self, module: str) -> list[str]:
        """Returns the names in a module's `__all__`."""
        tree = self.parse(module)
        for node in tree.body if tree else []:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                return [str(name) for name in ast.literal_eval(node.value)]
        return []

    def find(self, module: str, name: str) -> tuple[str, ast.stmt] | None:
        """Returns the module and the definition of a name, through imports; None for a name of others."""
        tree = self.parse(module)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.ClassDef | Function) and node.name == name:
                return module, node
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    if (alias.asname or alias.name) == name and node.module != module:
                        return self.find(node.module, alias.name)
        return None


def face_faults(root: Path) -> Iterator[Fault]:
    """Yields the faults in the docstrings of what the public faces export."""
    modules = Modules(root)
    checked: set[tuple[str, str]] = set()
    for face in FACES:
        for name in modules.exports(face):
            yield from _name_faults(modules, face, name, checked)


def _name_faults(modules: Modules, module: str, name: str, checked: set[tuple[str, str]]) -> Iterator[Fault]:
    definition_at = modules.find(module, name)
    if definition_at is None or (definition_at[0], name) in checked:
        return
    home, definition = definition_at
    checked.add((home, name))
    file = modules.file(home)
    if isinstance(definition, Function):
        yield from _function_faults(file, name, definition, {})
    elif isinstance(definition, ast.ClassDef):
        yield from _class_faults(modules, file, definition)
        for base in definition.bases:
            if isinstance(base, ast.Name):
                yield from _name_faults(modules, home, base.id, checked)


def _class_faults(modules: Modules, file: str, definition: ast.ClassDef) -> Iterator[Fault]:
    sections = _sections(ast.get_docstring(definition) or "")
    if any("dataclass" in ast.unparse(decorator) for decorator in definition.decorator_list):
        listed = sections.get("Attributes", []) + sections.get("Args", [])
        for field, following in zip(definition.body, [*definition.body[1:], None], strict=True):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            name = field.target.id
            told = told or _has_text(field.annotation) or _has_text(field.value)
            if not (told or name.startswith("_") or name in listed):
                yield Fault(f"{file}:{field.lineno}", f"{definition.name}.{name} has no text", "fields")
    methods = {node.name: node for node in definition.body if isinstance(node, Function)}
    for name, node in methods.items():
        if name == "__init__" or not name.startswith("_"):
            more = sections if name == "__init__" else _referred(modules, node, methods)
            yield from _function_faults(file, f"{definition.name}.{name}", node, more)


def _referred(
    modules: Modules, node: Function, methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]
) -> dict[str, list[str]]:
    """Returns the sections to which a docstring refers by "Arguments and errors: see `acker.spark.bolt`"."""
    reference = re.search(r"\bArguments[\w ]*: see `([\w.]+)`", ast.get_docstring(node) or "")
    if reference is None:
        return {}
    module, _, name = reference[1].rpartition(".")
    found = modules.find(module, name) if module else None
    other = found[1] if found else methods.get(name)
    sections = _sections(ast.get_docstring(other) or "") if isinstance(other, Function) else {}
    if node.args.kwarg and any(name.startswith("**") for name in sections.get("Args", [])):
        sections["Args"].append(f"**{node.args.kwarg.arg}")  # the same ones, by another name
    return sections


def _has_text(expression: ast.expr | None) -> bool:
    """True for `Annotated[int, "A text."]`, and for a default like `number(1, "A text.")`."""
    return isinstance(expression, ast.Subscript | ast.Call) and any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        for node in ast.walk(expression)
    )


def _function_faults(file: str, name: str, node: Function, more: dict[str, list[str]]) -> Iterator[Fault]:
    """Yields the faults of a function's docstring.

    Args:
        file: Its file.
        name: Its name, with the class before it.
        node: The function.
        more: Sections elsewhere: in its class, for a constructor, or in a function that it refers to.
    """
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if any(decorator.endswith(("overload", ".setter")) for decorator in decorators):
        return
    place = f"{file}:{node.lineno}"
    text = ast.get_docstring(node) or ""
    sections = _sections(text)
    parameters = [] if "fixture" in decorators else _parameters(node)
    for parameter in parameters:
        if parameter not in sections.get("Args", []) + more.get("Args", []):
            yield Fault(place, f"{name}: {parameter} has no line in Args", "args")
    for parameter in sections.get("Args", more.get("Args", []) if node.name == "__init__" else []):
        if parameter not in parameters:
            yield Fault(place, f"{name}: {parameter} is in Args, and is no parameter", "args")
    if text and not _returns_told(node, decorators, text, {**more, **sections}):
        yield Fault(
            place, f"{name}: the summary does not say what is returned, and Returns is missing", "returns"
        )
    raised = {
        ast.unparse(n.exc.func)
        for n in _body(node)
        if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call)
    }
    prose = re.split(r"^(?:Raises|Example|Examples):$", text, maxsplit=1, flags=re.M)[0]
    raised |= set(re.findall(r"\b[Rr]aises? `?([A-Z]\w+)", prose))
    for error in sorted(raised):
        if text and error.rpartition(".")[2] not in sections.get("Raises", []) + more.get("Raises", []):
            yield Fault(place, f"{name}: {error} has no line in Raises", "raises")


def _body(function: Function) -> Iterator[ast.AST]:
    """Yields the nodes of a function's body without the functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        waiting += (
            child for child in ast.iter_child_nodes(node) if not isinstance(child, Function | ast.Lambda)
        )


def _parameters(node: Function) -> list[str]:
    arguments = node.args
    names = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return [name for name in names if not name.lstrip("*").startswith("_")]


def _returns_told(node: Function, decorators: list[str], text: str, sections: dict[str, list[str]]) -> bool:
    returned = ast.unparse(node.returns) if node.returns else "None"
    if returned in ("None", "Self", "NoReturn", "Iterator[None]") or "property" in " ".join(
        [*decorators, "fixture"][:-1]
    ):
        return True
    summary = text.split("\n\n")[0]
    nouns = r"(?:Returns?|Yields?|Makes?|Opens?|Creates?|Builds?|The|A|An|True|Each|Every|All)\b"
    told = re.match(nouns, summary) or re.search(r"\b(?:returns|yields)\b", summary)
    return (
        bool(told) or "Returns" in sections or "Yields" in sections or any("fixture" in d for d in decorators)
    )


def _sections(text: str) -> dict[str, list[str]]:
    """Returns the sections of a docstring in Google style, each with the names that begin its lines."""
    sections: dict[str, list[str]] = {}
    names: list[str] | None = None
    for line in text.splitlines():
        if heading := re.fullmatch(r"([A-Z][a-z]+):", line):
            names = sections.setdefault(heading[1], [])
        elif line and not line.startswith(" "):
            names = None
        elif names is not None and (entry := re.match(r" {4}(\*{0,2}[\w.]+)(?: \([^)]*\))?:", line)):
            names.append(entry[1])
    return sections


if __name__ == "__main__":
    sys.exit(main())
