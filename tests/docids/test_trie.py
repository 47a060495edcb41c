"""The trie against a plain dictionary trie, and every change of it against building anew."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gr2.docids.trie import ARRAYS, LIMIT, Trie

END = 3  # in the middle of the token ids, so that the end is not always the first or the last child
TOKENS = [0, 1, 2, 4, 5, 6, 40_000, LIMIT]

row = st.lists(st.sampled_from(TOKENS), max_size=7).map(tuple)
rows = st.lists(row, max_size=40, unique=True)
untimed = settings(deadline=None)  # the first example pays for the compiler
STRUCTURE = ("first", "token", "below", "height", "leaf")


class Node:
    """A node of the oracle: a dictionary of children, and the docid if it is a leaf."""

    def __init__(self) -> None:
        self.children: dict[int, Node] = {}
        self.docid = -1

    def below(self) -> int:
        return (self.docid >= 0) + sum(child.below() for child in self.children.values())

    def height(self) -> int:
        return max((1 + child.height() for child in self.children.values()), default=0)


def oracle(docids: dict[int, tuple[int, ...]]) -> Node:
    root = Node()
    for docid, tokens in docids.items():
        node = root
        for token in (*tokens, END):
            node = node.children.setdefault(token, Node())
        node.docid = docid
    return root


def assert_is(trie: Trie, docids: dict[int, tuple[int, ...]]) -> None:
    """Walk the trie and the oracle side by side, level by level, and compare everything at every node."""
    expected, nodes, seen = [oracle(docids)], np.array([0]), 0
    while expected:
        assert nodes.tolist() == list(range(seen, seen + len(expected)))  # breadth-first, none left out
        seen += len(expected)
        assert trie.below[nodes].tolist() == [node.below() for node in expected]
        assert trie.height[nodes].tolist() == [node.height() for node in expected]
        assert trie.docid_of(nodes).tolist() == [node.docid for node in expected]
        edges = [
            (i, token, node.children[token])
            for i, node in enumerate(expected)
            for token in sorted(node.children)
        ]
        position, token, nodes = trie.children(nodes)
        assert position.tolist() == [edge[0] for edge in edges]
        assert token.tolist() == [edge[1] for edge in edges]
        expected = [edge[2] for edge in edges]
    assert trie.nodes == seen == len(trie.first) - 1 == len(trie.token) + 1
    assert len(trie) == len(docids)
    for docid, tokens in docids.items():
        assert trie.tokens(docid).tolist() == list(tokens)
        assert trie.docid_of(trie.find([*tokens, END])) == docid
        assert trie.leaf_of([docid]) == trie.find([*tokens, END])


def assert_same(one: Trie, two: Trie, names: Sequence[str] = ARRAYS) -> None:
    for name in names:
        a, b = getattr(one, name), getattr(two, name)
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), name


def build(sequences: Sequence[Sequence[int]]) -> Trie:
    return Trie.from_sequences(sequences, end=END)


@untimed
@given(rows)
def test_it_is_the_dictionary_trie(docids):
    assert_is(build(docids), dict(enumerate(docids)))


@untimed
@given(rows, row)
def test_find_knows_what_is_not_there(docids, tokens):
    trie = build(docids)
    prefixes = {docid[:length] for docid in docids for length in range(len(docid) + 1)} | {()}
    assert (trie.find(tokens) >= 0) == (tokens in prefixes)
    assert (trie.find([*tokens, END]) >= 0) == (tokens in docids)
    assert trie.find([*tokens, END, 1]) == -1


@untimed
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_docids_changes_only_their_indices(docids, random):
    shuffled = random.sample(docids, len(docids))
    one, two = build(docids), build(shuffled)
    assert_same(one, two, STRUCTURE)
    assert [docids[i] for i in one.leaf_docid] == [shuffled[i] for i in two.leaf_docid]


@untimed
@given(rows, st.data())
def test_restrict_and_remove_equal_building_anew(docids, data):
    chosen = data.draw(st.sets(st.sampled_from(range(len(docids)))) if docids else st.just(set()))
    trie = build(docids)
    kept = {i: docids[i] for i in sorted(chosen)}
    small = trie.restrict(np.array([*chosen, *chosen], np.int64))  # repeats do no harm
    assert_is(small, kept)
    assert_same(small, build(list(kept.values())), STRUCTURE)
    assert_same(small, trie.remove(np.array([i for i in range(len(docids)) if i not in chosen], np.int64)))
    assert_same(trie, trie.restrict(np.arange(len(docids))))
    assert_same(small, small.restrict(list(chosen)))


@untimed
@given(rows, st.data())
def test_add_equals_building_anew_and_never_reuses_an_index(docids, data):
    cut = data.draw(st.integers(0, len(docids)))
    trie = build(docids[:cut])
    assert_same(trie.add(docids[cut:]), build(docids))
    assert_same(trie, build(docids[:cut]))  # the old one is as it was
    without = trie.remove(np.arange(cut // 2, cut)).add(docids[cut:])
    left = {i: docid for i, docid in enumerate(docids) if i < cut // 2 or i >= cut}
    assert_is(without, left)
    assert without.issued == len(docids)


@settings(max_examples=25, deadline=None)
@given(docids=rows, mmap=st.booleans())
def test_save_and_load(tmp_path_factory, docids, mmap):
    folder = tmp_path_factory.mktemp("trie") / "saved"
    trie = build(docids).add([[7, 7, 7]])
    trie.save(folder)
    loaded = Trie.load(folder, mmap=mmap)
    assert_same(trie, loaded)
    assert (loaded.end, loaded.issued, len(loaded)) == (END, len(docids) + 1, len(docids) + 1)
    assert_is(loaded.remove([len(docids)]), dict(enumerate(docids)))


def test_loading_maps_and_never_writes_back(tmp_path):
    trie = build([(1, 2), (1,)])
    trie.save(tmp_path / "trie")
    before = (tmp_path / "trie" / "token.npy").read_bytes()
    loaded = Trie.load(tmp_path / "trie")
    assert isinstance(loaded.token.base, np.memmap)
    tensor = torch.from_numpy(loaded.token)
    assert tensor.data_ptr() == loaded.token.ctypes.data  # nothing is copied
    tensor[0] = 9
    assert (tmp_path / "trie" / "token.npy").read_bytes() == before
    trie.save(tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "trie").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "again").iterdir())
    for name in files:
        assert (tmp_path / "trie" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("name", [*(f"{name}.npy" for name in ARRAYS), "trie.json"])
def test_a_flipped_byte_is_refused(tmp_path: Path, name: str):
    folder = tmp_path / "trie"
    build([(1, 2), (1,), (4, 4, 4)]).save(folder)
    content = bytearray((folder / name).read_bytes())
    content[-2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        Trie.load(folder)


def test_a_folder_without_a_trie_is_refused(tmp_path):
    with pytest.raises(ValueError, match="manifest"):
        Trie.load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"files": {}}')
    with pytest.raises(ValueError, match=r"manifest\.json: changed .* does not list trie\.json"):
        Trie.load(tmp_path)


def test_no_docids_one_docid_and_the_empty_docid():
    empty = build([])
    assert (empty.nodes, len(empty), empty.below.tolist(), empty.height.tolist()) == (1, 0, [0], [0])
    assert [part.tolist() for part in empty.children([0, 0])] == [[], [], []]
    assert empty.docid_of([0]).tolist() == [-1] and empty.find([]) == 0 and empty.find([1]) == -1
    assert_same(empty, empty.restrict([]))
    assert_same(empty.add([(5, 6)]), build([(5, 6)]))
    assert_same(build([(5, 6)]).remove([0]), empty)
    one = build([(5, 6)])
    assert (one.nodes, one.below.tolist(), one.height.tolist()) == (4, [1, 1, 1, 1], [3, 2, 1, 0])
    nothing = build([()])
    assert nothing.children([0])[1].tolist() == [END] and nothing.tokens(0).tolist() == []


def test_build_takes_arrays_of_any_integer_type():
    expected = build([(1, 2), (), (1,)])
    for kind in (np.int64, np.uint16, np.int32):
        flat = np.array([9, 1, 9, 2, 9, 1], kind)[1::2]  # not contiguous
        assert_same(Trie.build(flat, np.array([0, 2, 2, 3], kind), end=END), expected)


def test_ten_thousand_random_docids():
    random = np.random.default_rng(0)
    docids = {tuple(random.zipf(1.5, size=length) % 1000 + 4) for length in random.integers(0, 17, 10_000)}
    ordered = sorted(docids, key=hash)
    trie = build(ordered)
    assert_is(trie, dict(enumerate(ordered)))
    assert_same(build(ordered[:5000]).add(ordered[5000:]), trie)
    chosen = random.choice(len(ordered), 700, replace=False)
    assert_is(trie.restrict(chosen), {int(i): ordered[i] for i in chosen})


def test_duplicates_are_refused_by_position_and_tokens():
    with pytest.raises(ValueError, match=r"docids 1 and 3 have the same tokens \[4, 5, 6, 7, 8, 9\]"):
        build([(1,), (4, 5, 6, 7, 8, 9), (4, 5), (4, 5, 6, 7, 8, 9), (4, 5, 6, 7, 8)])
    with pytest.raises(ValueError, match=r"docids 0 and 2 have the same tokens \[\]"):
        build([(), (1,), (), ()])
    trie = build([(1,), (2, 4)])
    with pytest.raises(ValueError, match=r"docids 1 and 3 have the same tokens \[2, 4\]"):
        trie.add([(2,), (2, 4)])
    with pytest.raises(ValueError, match=r"docids 2 and 3 have the same tokens \[7\]"):
        trie.add([(7,), (7,)])


@untimed
@given(rows.filter(bool), st.data())
def test_any_duplicate_is_found(docids, data):
    copied = data.draw(st.integers(0, len(docids) - 1))
    with pytest.raises(ValueError, match=f"docids {copied} and {len(docids)} have the same tokens"):
        build([*docids, docids[copied]])


@pytest.mark.parametrize(
    ("sequences", "message"),
    [
        ([(1,), (1, END, 2)], r"docid 1 has token 3 at position 1: .* not the end token 3"),
        ([(), (), (5, 1, -2)], r"docid 2 has token -2 at position 2: .* lie in 0"),
        ([(2**31,)], r"docid 0 has token 2147483648 at position 0: .* 2147483647"),
        ([(1,), (1,) * 65_535], r"docid 1 has 65535 tokens, more than 65534"),
    ],
)
def test_wrong_tokens_are_named(sequences, message):
    with pytest.raises(ValueError, match=message):
        build(sequences)


def test_a_long_docid_fits():
    trie = build([(1,) * 65_534, (1,) * 65_533])
    assert trie.height[0] == 65_535 and trie.nodes == 65_537 and trie.below[1] == 2


def test_wrong_arguments_are_refused():
    trie = build([(1,), (2,)])
    for tokens, offsets, message in (
        ([1.5], [0, 1], "tokens must be a flat array of integers"),
        ([[1]], [0, 1], "tokens must be a flat array"),
        ([1, 2], [0, 1], "offsets must rise"),
        ([1, 2], [0, 2, 1, 2], "offsets must rise"),
        ([1, 2], [1, 2], "offsets must rise"),
        ([], [], "offsets must rise"),
    ):
        with pytest.raises(ValueError, match=message):
            Trie.build(tokens, offsets, end=END)
    for end in (-1, 2**31):
        with pytest.raises(ValueError, match=f"the end token {end} and .* must lie in 0"):
            Trie.build([1], [0, 1], end=end)
    with pytest.raises(TypeError):
        build([(1.5,)])  # type: ignore[list-item]
    for unknown in (2, -1):
        for change in (trie.restrict, trie.remove, trie.leaf_of, lambda docids: trie.tokens(docids[1])):
            with pytest.raises(ValueError, match=f"docid {unknown} is not in this trie of 2 docids"):
                change([0, unknown])
    with pytest.raises(ValueError, match="must be integers, not bool"):
        trie.restrict(np.array([True, False]))  # a mask would be read as the indices 1 and 0
    for node in (-1, trie.nodes):
        with pytest.raises(IndexError, match="not in the trie"):
            trie.children([node])
