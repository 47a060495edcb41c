"""Padding, and means over what is not padding."""

import pytest
import torch

from gr2.model.padding import masked_mean, padded, pooled_query


@pytest.mark.parametrize("kind", [torch.long, torch.bool, torch.float32])
def test_masked_mean_is_the_mean_of_the_unmasked_rows(kind):
    states = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0], [0, 1, 0, 1, 1, 0], [0] * 6]).to(kind)
    means = masked_mean(states, mask)
    for row in range(3):
        torch.testing.assert_close(means[row], states[row][mask[row].bool()].mean(0))
    assert not means[3].any()  # nothing to average
    torch.testing.assert_close(pooled_query(states, mask)[:3].norm(dim=1), torch.ones(3))


def test_masked_mean_keeps_the_bits_of_the_forms_it_replaces():
    """Training is compared byte for byte, so one form must not round otherwise than another."""
    states = torch.randn(8, 40, 24, generator=torch.Generator().manual_seed(1))
    mask = (torch.rand(8, 40, generator=torch.Generator().manual_seed(2)) < 0.7).long()
    for part in (states, states.bfloat16()):
        count = mask.sum(1, keepdim=True).clamp_min(1)
        mine = masked_mean(part, mask)
        assert torch.equal(mine, (part * mask.unsqueeze(-1)).sum(1) / count)  # whole numbers as the mask
        assert torch.equal(mine, torch.where(mask.unsqueeze(-1) > 0, part, 0.0).sum(1) / count)


def test_padding_is_made_on_the_device():
    ids, mask = padded([[5, 6, 7], [], [8]])
    assert ids.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert ids.device.type == mask.device.type == "cpu" and ids.dtype == torch.long
    assert all(part.device.type == "meta" for part in padded([[5]], "meta"))
    assert all(part.shape == (0, 0) for part in padded([]))
