"""A JSON file → a value of a given type; a wrong one is a ValueError that names the file and the field.

The pair of `write_json`. A type is a dataclass, a TypedDict, or built from int, float, bool, str, None, Any,
Literal, list, tuple, dict, Mapping and unions.
"""

import json
import math
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

T = TypeVar("T")
NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "null"}
UNIONS = (Union, types.UnionType)


class _Wrong(Exception):
    """A value of another type: where it is, and what was expected."""


def read_json(path: Path, kind: type[T]) -> T:
    """Read a file that holds one JSON value of this type."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON: {error}") from None
    return typed(value, kind, path)


@contextmanager
def readable(*paths: Path) -> Iterator[None]:
    """Around a library that reads these files: whatever it raises becomes a ValueError that names them."""
    try:
        yield
    except Exception as error:  # libraries raise anything from KeyError to bare Exception for a wrong file
        names = " or ".join(map(str, paths))
        raise ValueError(f"{names}: cannot be read: {type(error).__name__}: {error}") from error


def typed(value: object, kind: type[T], source: object, field: str = "") -> T:
    """A value that JSON gave as a value of this type; `source` (a file) and `field` tell where it comes from.

    >>> typed([1, 2.5], tuple[float, ...], Path("config.json"))
    (1.0, 2.5)
    >>> typed({"a": "1"}, dict[str, int], Path("config.json"), "sizes")
    Traceback (most recent call last):
    ValueError: config.json: sizes.a: expected a whole number, found '1'
    """
    try:
        return _as(value, kind, field)  # type: ignore[no-any-return]
    except _Wrong as error:
        raise ValueError(f"{source}: {error}") from None


def _as(value: Any, kind: Any, field: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in UNIONS:
        return _as_one_of(value, inner, field)
    if origin is Literal:
        if not any(type(value) is type(each) and value == each for each in inner):
            raise _wrong(field, f"one of {', '.join(map(str, inner))}", value)
        return value
    if is_dataclass(kind) or is_typeddict(kind):
        return _as_object(value, kind, field)
    if origin in (dict, Mapping):
        items = _checked(value, dict, "an object", field).items()
        return {key: _as(each, inner[1], _below(field, key)) for key, each in items}
    if origin in (list, tuple):
        return _as_sequence(value, origin, inner, field)
    if kind is float and type(value) is int:
        return float(value) if abs(value) < 1e300 else math.inf
    if kind is Path:
        return Path(_checked(value, str, "a path", field))
    return _checked(value, kind, NAMES[kind], field)


def _as_one_of(value: Any, kinds: tuple[Any, ...], field: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    for kind in others[:-1]:
        try:
            return _as(value, kind, field)
        except _Wrong:
            continue
    return _as(value, others[-1], field)


def _as_sequence(value: Any, origin: type, inner: tuple[Any, ...], field: str) -> Any:
    values = _checked(value, list, "a list", field)
    if origin is list or inner[-1] is Ellipsis:
        if inner[0] in NAMES and all(
            type(each) is inner[0] for each in values
        ):  # quick, for a million docnos
            return origin(values)
        kinds = [inner[0]] * len(values)
    elif len(values) == len(inner):
        kinds = list(inner)
    else:
        raise _wrong(field, f"a list of {len(inner)} values", value)
    pairs = enumerate(zip(values, kinds, strict=True))
    return origin(_as(each, kind, f"{field}[{number}]") for number, (each, kind) in pairs)


def _as_object(value: Any, kind: Any, field: str) -> Any:
    content, hints = _checked(value, dict, "an object", field), get_type_hints(kind)
    if is_dataclass(kind):
        needed = {f.name for f in fields(kind) if f.default is f.default_factory is MISSING}
    else:
        needed = set(kind.__required_keys__)
    for name in sorted(needed - set(content)):
        raise _Wrong(f"{_below(field, name)}: missing")
    for name in content:
        if name not in hints:
            place = f"{field}: " if field else ""
            raise _Wrong(f"{place}has no field {name!r}; it has: {', '.join(sorted(hints))}")
    found = {name: _as(each, hints[name], _below(field, name)) for name, each in content.items()}
    try:
        return kind(**found)
    except ValueError as error:  # a dataclass that checks its values
        raise _Wrong(f"{field}: {error}" if field else str(error)) from None


def _checked(value: Any, kind: type, name: str, field: str) -> Any:
    if type(value) is not kind:
        raise _wrong(field, name, value)
    return value


def _wrong(field: str, expected: str, value: object) -> _Wrong:
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
    return _Wrong(f"{field}{': ' * bool(field)}expected {expected}, found {shown}")


def _below(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name
