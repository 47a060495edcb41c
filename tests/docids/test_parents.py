"""The parents of trie nodes against the children."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from gr2.decode.paths import paths_of
from gr2.docids.trie import Trie

END = 3
docids = st.lists(st.lists(st.sampled_from([0, 1, 2, 4, 5]), max_size=6).map(tuple), max_size=30, unique=True)


@given(docids=docids)
def test_a_parent_is_the_node_that_has_the_child(docids):
    trie = Trie.from_sequences(docids, end=END)
    assert trie.parents.dtype == np.int32 and len(trie.parents) == trie.nodes and trie.parents[0] == -1
    row, _, child = trie.children(np.arange(trie.nodes))
    assert trie.parents[child].tolist() == row.tolist() and len(child) == trie.nodes - 1


@given(docids=docids.filter(bool), data=st.data())
def test_the_nodes_towards_leaves_are_those_on_their_paths(docids, data):
    trie = Trie.from_sequences(docids, end=END)
    chosen = data.draw(st.lists(st.sampled_from(range(len(docids))), unique=True))
    kept = paths_of(trie, torch.device("cpu")).towards(trie.leaf_of(chosen))
    paths = [(*docids[i], END) for i in chosen]
    expected = {trie.find(path[:n]) for path in paths for n in range(len(path) + 1)}
    assert set(kept.nonzero()[:, 0].tolist()) == expected
