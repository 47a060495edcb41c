"""A weight matrix → the fastest function on this machine that multiplies a few rows by it.

A decoding step multiplies 1 to 20 rows per query, where an ordinary GEMM spends its time reordering the
weights. So the weights are reordered once: for oneDNN (fp32, the same numbers up to rounding) or as 8-bit
integers for FBGEMM (opt-in, scores change). On other devices it is `torch.nn.functional.linear`.

Shapes: R rows, I inputs, O outputs.
"""

import warnings
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Precision = Literal["fp32", "int8"]
Multiply = Callable[[Tensor], Tensor]
FEW = 128
"""Up to this many rows prepacked weights win; above, the plain GEMM is as fast or faster."""
EXACT = 32
"""One input in 32 stays fp32 in an int8 product: those that are largest in this call."""


def linear(weight: Tensor, bias: Tensor | None = None, *, precision: Precision = "fp32") -> Multiply:
    """The map [R, I] → [R, O], ``x @ weight.T + bias``, prepared once for many calls with few rows.

    Args:
        weight: [O, I]; may be used without a copy, so it must not change afterwards.
        bias: [O] or None.
        precision: "fp32", or "int8": weights per output and inputs per call in 8 bits (CPU only).
    """
    weight = weight.detach()
    bias = None if bias is None else bias.detach()
    if precision == "int8":
        return _int8(weight, bias)
    if precision != "fp32":
        raise ValueError(f"precision must be 'fp32' or 'int8', not {precision!r}")
    return _packed(weight, bias) or (lambda x: F.linear(x, weight, bias))


def _packed(weight: Tensor, bias: Tensor | None) -> Multiply | None:
    """OneDNN's own weight order, or None where this build of torch does not offer it."""
    if (
        weight.device.type != "cpu"
        or weight.dtype != torch.float32
        or not torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    ):
        return None
    try:
        pack, multiply = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
        with torch.inference_mode(False), torch.no_grad():
            packed = pack(weight.contiguous(), FEW)
            multiply(weight[:1], packed, bias, "none", [], "")
    except (AttributeError, RuntimeError):  # private operators, missing in some builds
        return None

    def few_rows(x: Tensor) -> Tensor:
        if len(x) > FEW:
            return F.linear(x, weight, bias)
        out: Tensor = multiply(x, packed, bias, "none", [], "")
        return out

    return few_rows


def _int8(weight: Tensor, bias: Tensor | None) -> Multiply:
    """Weights rounded to 8 bits with one scale per output; inputs are rounded per call by the kernel.

    A few inputs of a trained T5 are ten times larger than the rest. With one 8-bit scale for all inputs the
    others are lost, and with them 43 % of the top 20. So the largest inputs of a call are multiplied in fp32,
    as in LLM.int8 (Dettmers et al. 2022): 6 % are lost, at 30 % more time, still 1.5 times faster than fp32.
    """
    engines = [name for name in ("fbgemm", "qnnpack") if name in torch.backends.quantized.supported_engines]
    if weight.device.type != "cpu" or not engines:
        raise ValueError(f"int8 weights need a CPU with FBGEMM or QNNPACK, not {weight.device}")
    scale = weight.abs().amax(1).double().clamp_min(1e-12) / 127  # [O]
    before = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = engines[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch recommends newer types, which are slower here
            zero = torch.zeros(len(weight), dtype=torch.long)
            rounded = torch.quantize_per_channel(weight.float(), scale, zero, 0, torch.qint8)
            packed = torch.ops.quantized.linear_prepack(rounded, bias)
    finally:
        torch.backends.quantized.engine = before
    multiply = torch.ops.quantized.linear_dynamic
    columns = weight.T.contiguous()  # [I, O]
    kept = max(1, weight.shape[1] // EXACT)

    def few_bits(x: Tensor) -> Tensor:
        large = x.abs().amax(0).topk(kept).indices
        # 7-bit inputs: AVX2 adds pairs of products in 16 bits, which 8-bit inputs can overflow.
        out: Tensor = multiply(x.index_fill(1, large, 0.0), packed, reduce_range=True)
        return out.addmm_(x[:, large], columns[large])

    return few_bits
