"""A second torch device that every machine has: tensors that hold real numbers and say they are elsewhere.

Inside `second_device()`, `torch.device("meta")` behaves as an accelerator would: tensors made there or moved
there hold data of their own, an operation that mixes them with CPU tensors fails as it does on CUDA, and so
does `.numpy()`. So a whole training and search can be run on it, and compared with the CPU number by number.
What it cannot show are the kernels of a real accelerator, its streams and its rounding.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    return_and_correct_aliasing,
)
from torch.utils._pytree import tree_map

ELSEWHERE = torch.device("meta")
READS = {  # operations that bring a value to the host
    "aten._local_scalar_dense.default",
    "aten.equal.default",
    "aten.is_nonzero.default",
}


class Elsewhere(torch.Tensor):
    """A tensor that reports the second device; its data are in `inner`."""

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        found = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=ELSEWHERE,
            requires_grad=requires_grad,
        )
        found.inner = inner
        return found

    def __repr__(self, **kwargs):
        return f"Elsewhere({self.inner!r})"

    def tolist(self):
        return self.inner.tolist()

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts, about, size, stride):
        return Elsewhere(parts["inner"])

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        return _run(function, arguments, options or {})


def _run(function, arguments, options):
    """The operation on the data; refused if the tensors are on both devices."""
    name = str(function)
    flat = torch.utils._pytree.tree_leaves((arguments, options))
    tensors = [value for value in flat if isinstance(value, torch.Tensor)]
    here = [value for value in tensors if not isinstance(value, Elsewhere) and value.dim() > 0]
    there = [value for value in tensors if isinstance(value, Elsewhere)]
    wanted = options.get("device")
    wanted = torch.device(wanted) if wanted is not None else None
    moves = name.startswith(("aten._to_copy", "aten.copy_", "aten.to."))
    if here and there and not moves:
        raise RuntimeError(f"{name}: tensors are on two devices")
    plain = tree_map(
        lambda value: value.inner if isinstance(value, Elsewhere) else value, (arguments, options)
    )
    if wanted is not None:
        plain[1]["device"] = torch.device("cpu")
    result = function(*plain[0], **plain[1])
    if name in READS:
        return result
    goes = bool(there) if wanted is None else wanted == ELSEWHERE
    if name.startswith("aten.copy_"):
        goes = isinstance(arguments[0], Elsewhere)
    if not goes:
        return result
    wrapped = tree_map(lambda value: Elsewhere(value) if isinstance(value, torch.Tensor) else value, result)
    return return_and_correct_aliasing(function, arguments, options, wrapped) if there else wrapped


class _Factories(TorchDispatchMode):
    """Tensors that are made on the second device, or moved to it, get data."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        options = options or {}
        flat = torch.utils._pytree.tree_leaves((arguments, options))
        wanted = options.get("device")
        if any(isinstance(value, Elsewhere) for value in flat) or (
            wanted is not None and torch.device(wanted) == ELSEWHERE
        ):
            return _run(function, arguments, options)
        return function(*arguments, **options)


class _Literals(TorchFunctionMode):
    """`torch.tensor(values, device=...)` fills its result before any operation is dispatched."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        wanted = options.get("device")
        if function is torch.tensor and wanted is not None and torch.device(wanted) == ELSEWHERE:
            return torch.tensor(*arguments, **{**options, "device": "cpu"}).to(ELSEWHERE)
        return function(*arguments, **options)


class _NoGradient:
    """In place of inference mode, whose tensors a subclass cannot make views of."""

    def __init__(self, mode):
        self.context = torch.no_grad() if mode else torch.enable_grad()

    def __enter__(self):
        self.context.__enter__()

    def __exit__(self, *error):
        self.context.__exit__(*error)


@contextmanager
def _plain_loading():
    """transformers builds models on the true meta device before it reads their weights: let it."""
    from transformers import PreTrainedModel

    load = PreTrainedModel.from_pretrained.__func__

    def plain(kind, *arguments, **options):
        with _disable_current_modes():
            return load(kind, *arguments, **options)

    PreTrainedModel.from_pretrained = classmethod(plain)
    try:
        yield
    finally:
        PreTrainedModel.from_pretrained = classmethod(load)


@contextmanager
def second_device():
    """The second device, for the length of a block."""
    inference_mode, torch._C._InferenceMode = torch._C._InferenceMode, _NoGradient
    try:
        with _plain_loading(), _Factories(), _Literals():
            yield ELSEWHERE
    finally:
        torch._C._InferenceMode = inference_mode
