"""A JSON file is read as the type that it should have, or a ValueError names the file and the field."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gr2.model.config import GR2Config, LookAheadConfig
from gr2.store import read_json, readable, typed
from gr2.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 3
    kind: Literal["a", "b"] = "a"

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("expected a size of at least 0")


class Content(TypedDict):
    name: str
    share: float
    flag: bool
    inner: Inner
    pairs: dict[str, list[int]]
    gate: tuple[float, float] | None
    more: NotRequired[Mapping[str, Any]]


GOOD = {
    "name": "x",
    "share": 1,
    "flag": False,
    "inner": {"size": 2},
    "pairs": {"a": [1, 2]},
    "gate": [0.5, 1],
    "more": {"what": [None, {}]},
}


def test_what_is_right_has_its_types():
    found = typed(GOOD, Content, Path("f"))
    assert found["inner"] == Inner(size=2) and found["gate"] == (0.5, 1.0) and type(found["share"]) is float
    assert typed(GOOD | {"gate": None}, Content, Path("f"))["gate"] is None


WRONG = {
    "a number for a text": ({"name": 1}, "name: expected a text, found 1"),
    "a text for a number": ({"share": "1"}, "share: expected a number, found '1'"),
    "true for a number": ({"share": True}, "share: expected a number, found True"),
    "one for true": ({"flag": 1}, "flag: expected true or false, found 1"),
    "null": ({"name": None}, "name: expected a text, found None"),
    "a part of a number": ({"inner": {"size": 2.5}}, r"inner\.size: expected a whole number, found 2\.5"),
    "another word": ({"inner": {"kind": "c"}}, r"inner\.kind: expected one of a, b, found 'c'"),
    "a value out of range": ({"inner": {"size": -1}}, "inner: expected a size of at least 0"),
    "a list for an object": ({"inner": []}, r"inner: expected an object, found \[\]"),
    "an object for a list": ({"pairs": {"a": {}}}, r"pairs\.a: expected a list, found {}"),
    "a wrong item": ({"pairs": {"a": [1, "2"]}}, r"pairs\.a\[1\]: expected a whole number, found '2'"),
    "a short list": ({"gate": [1]}, r"gate: expected a list of 2 values, found \[1\]"),
    "a wrong item of a pair": ({"gate": [1, None]}, r"gate\[1\]: expected a number, found None"),
    "an unknown field": ({"inner": {"sizes": 1}}, "inner: has no field 'sizes'; it has: kind, size"),
    "a long value": ({"share": "x" * 500}, "share: expected a number, found 'x{59}…$"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_sentence_with_file_and_field(tmp_path, name):
    change, expected = WRONG[name]
    (tmp_path / "config.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(ValueError, match=rf"^{tmp_path}/config\.json: {expected}"):
        read_json(tmp_path / "config.json", Content)


def test_a_missing_field_and_a_file_that_is_no_json_are_named(tmp_path):
    path = tmp_path / "config.json"
    for content, expected in (
        (json.dumps({k: v for k, v in GOOD.items() if k != "pairs"}), "pairs: missing"),
        ("[", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[]", "expected an object"),
    ):
        path.write_text(content)
        with pytest.raises(ValueError, match=rf"config\.json: {expected}"):
            read_json(path, Content)
    path.write_bytes(b"\xff{}")
    with pytest.raises(ValueError, match=r"config\.json: expected JSON"):
        read_json(path, Content)


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("b"), AttributeError("c"), Exception("d")])
def test_whatever_a_library_raises_becomes_a_value_error_that_names_the_files(error):
    with pytest.raises(ValueError, match=rf"one/file or two: cannot be read: {type(error).__name__}"):
        with readable(Path("one/file"), Path("two")):
            raise error


CONFIGS = [
    GR2Config(normaliser="trie", max_tokens=9),
    LookAheadConfig(gate=(0.1, 0.2), words=0.5),
    TrainingConfig(),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_every_configuration_reads_back_as_it_was_written(config):
    stored = json.loads(json.dumps(asdict(config)))
    assert typed(stored, type(config), "config.json") == config


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def paths(value: Any, here: tuple = ()) -> list[tuple]:
    """Every place in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, each in inner for path in paths(each, (*here, key)))]


def replaced(value: Any, path: tuple, by: Any) -> Any:
    """The value with one place changed."""
    if not path:
        return by
    items = dict(value.items()) if isinstance(value, dict) else dict(enumerate(value))
    items[path[0]] = replaced(items[path[0]], path[1:], by)
    return items if isinstance(value, dict) else list(items.values())


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
@given(data=st.data())
def test_a_changed_configuration_is_read_or_refused_with_its_place(config, data):
    stored = json.loads(json.dumps(asdict(config)))
    path = data.draw(st.sampled_from(paths(stored)))
    try:
        found = typed(replaced(stored, path, data.draw(VALUES)), type(config), "config.json")
    except ValueError as error:
        assert str(error).startswith("config.json: ")
    else:
        assert isinstance(found, type(config))
