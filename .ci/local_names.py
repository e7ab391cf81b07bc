"""Finds local names that are used over many lines and do not say what they hold; a part of english.py."""

import ast
from collections.abc import Iterator

VAGUE = frozenset({"found", "known", "made", "one", "own", "what"})
LINES = 3
"""Lines over which a name may be used that names no thing, as in a loop or a comprehension."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def vague_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and a text for each name of `VAGUE` that a function uses over more than `LINES` lines.

    Closures, lambdas and comprehensions are parts of their function.
    """
    for function in _outer_functions(tree):
        lines: dict[str, list[int]] = {}
        for node in ast.walk(function):
            name = _local_name(node)
            if name in VAGUE and node is not function:
                lines.setdefault(name, []).append(node.lineno)
        for name, used in lines.items():
            count = max(used) - min(used) + 1
            if count > LINES:
                yield min(used), f"{function.name}: {name} is used over {count} lines, and names no thing"


def _outer_functions(node: ast.AST) -> Iterator[Function]:
    """Yields the functions and methods below a node, without the functions inside them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child
        else:
            yield from _outer_functions(child)


def _local_name(node: ast.AST) -> str:
    """Returns the name that a node uses or binds; empty if it has none."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ExceptHandler(name=str(name)):
            return name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return name
    return ""
