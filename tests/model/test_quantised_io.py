"""Weights that are stored with fewer bits."""

import pytest
import torch

from gr2.model.quantised_io import load_weights, save_weights


@pytest.mark.parametrize(
    ("storage", "error", "size"), [("fp32", 0.0, 4), ("fp16", 1e-3, 2), ("int8", 8e-3, 1)]
)
def test_weights_come_back_as_near_as_their_bits_allow(tmp_path, storage, error, size):
    torch.manual_seed(0)
    rows = torch.randn(64, 400) * torch.logspace(-3, 2, 64)[:, None]  # rows of very different size
    weights = {
        "matrix": rows,
        "vector": torch.randn(400),
        "count": torch.arange(5),
        "zero": torch.zeros(3, 7),
    }
    save_weights(weights, tmp_path / "w", storage)
    back = load_weights(tmp_path / "w")
    assert set(back) == set(weights) and torch.equal(back["count"], weights["count"])
    for name in ("matrix", "vector", "zero"):
        largest = weights[name].abs().amax(-1, keepdim=True).clamp_min(1e-9)
        assert float(((back[name] - weights[name]) / largest).abs().max()) <= error
    assert (tmp_path / "w").stat().st_size < size * rows.numel() * 1.15 + 6000
