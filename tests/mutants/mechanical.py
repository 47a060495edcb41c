"""A Python file → changed versions of it, each with one operator, constant or term that is another.

Messages of errors, docstrings and annotations stay as they are: no test should depend on them.
"""

import ast
import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from os.path import commonprefix

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
RENAMED = {
    "max": "min",
    "amax": "amin",
    "maximum": "minimum",
    "clamp_min": "clamp_max",
    "any": "all",
    "mean": "sum",
    "sum": "mean",
}
RENAMED |= {"min": "max", "all": "any"}


@dataclass(frozen=True)
class Change:
    """One changed version of a file."""

    line: int
    text: str
    """That line."""
    what: str
    """The changed expression, before and after."""
    source: str
    """The whole file."""


def changes(source: str) -> list[Change]:
    """Every change that can be made, in the order of the file."""
    tree = ast.parse(source)
    found = []
    for place, node in enumerate(_nodes(tree)):
        for number in range(len(_others(node))):
            copy = ast.parse(source)
            target = _nodes(copy)[place]
            before = ast.unparse(target)
            parent_field, other = _others(target)[number]
            after = _put(copy, target, parent_field, other)
            text = source.splitlines()[node.lineno - 1].strip()
            found.append(Change(node.lineno, text, _shown(before, after), ast.unparse(copy)))
    return found


def sampled(source: str, number: int, seed: int) -> list[Change]:
    """So many of them, always the same for a seed, in the order of the file."""
    every = changes(source)
    chosen = random.Random(seed).sample(range(len(every)), min(number, len(every)))
    return [every[index] for index in sorted(chosen)]


def _nodes(tree: ast.AST) -> list[ast.expr]:
    return [node for node in _walk(tree) if isinstance(node, ast.expr)]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes whose change could matter to a test."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_docstring(child):
                yield from _walk(child)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _others(node: ast.expr) -> list[tuple[str, ast.AST]]:
    """What may stand in the place of a field of the node, or of the node itself (an empty name)."""
    found: list[tuple[str, ast.AST]] = []
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
        found.append(("op", SWAPPED[type(node.op)]()))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.BitAnd | ast.BitOr):
            found.append(("", node.left))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
        found.append(("ops", SWAPPED[type(node.ops[0])]()))
    if isinstance(node, ast.UnaryOp):
        found.append(("", node.operand))
    if isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
        value = node.value
        changed = [not value] if isinstance(value, bool) else [value + 1, value - 1]
        found += [("", ast.Constant(each)) for each in changed]
    if isinstance(node, ast.Attribute) and node.attr in RENAMED:
        found.append(("attr", ast.Attribute(node.value, RENAMED[node.attr], node.ctx)))
    if isinstance(node, ast.Name) and node.id in RENAMED:
        found.append(("id", ast.Name(RENAMED[node.id], node.ctx)))
    if isinstance(node, ast.IfExp):
        found += [("", node.body), ("", node.orelse)]
    return found


def _put(tree: ast.AST, node: ast.expr, name: str, other: ast.AST) -> str:
    """Change the tree in place; the changed expression."""
    if name in ("op", "ops"):
        setattr(node, name, other if name == "op" else [other])
        return ast.unparse(node)
    other = deepcopy(other)
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, other)
            elif isinstance(value, list) and any(each is node for each in value):
                setattr(parent, field, [other if each is node else each for each in value])
    ast.fix_missing_locations(tree)
    return ast.unparse(other)


def _shown(before: str, after: str) -> str:
    """Both, without the beginning that they share if they are long."""
    shared = len(commonprefix([before, after]))
    start = max(0, shared - 30) if len(before) > 60 else 0
    cut = "…" if start else ""
    return " → ".join(
        f"{cut}{text[start : start + 60]}{'…' * (len(text) > start + 60)}" for text in (before, after)
    )
