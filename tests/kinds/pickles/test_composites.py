"""Sparse, quantized and nested tensors whose parts lie: refused before torch sees them, and never a crash."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import FormatError


class _Rebuilt:
    """Pickles as a call of one of torch's own functions."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.args


def _saved(function: Callable[..., Any], *args: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save({"t": _Rebuilt(function, *args)}, buffer)
    return buffer.getvalue()


def _longs(*numbers: int, shape: tuple[int, ...] | None = None) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64).reshape(shape or (len(numbers),))


def _nested(sizes: torch.Tensor, strides: torch.Tensor, offsets: torch.Tensor, buffer: torch.Tensor) -> bytes:
    return _saved(torch._utils._rebuild_nested_tensor, buffer, sizes, strides, offsets)


def _coo(indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, ...]) -> bytes:
    return _saved(torch._utils._rebuild_sparse_tensor, torch.sparse_coo, (indices, values, torch.Size(shape), True))


def _quantized(zero_point: Any, *, axis: int | None = None) -> bytes:
    whole = torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8)
    storage = torch.storage.TypedStorage(wrap_storage=whole.untyped_storage(), dtype=whole.dtype, _internal=True)
    scheme: tuple[Any, ...] = (torch.per_tensor_affine, 0.5, zero_point)
    if axis is not None:
        scheme = (torch.per_channel_affine, torch.ones(2), _longs(0, 0), axis)
    return _saved(torch._utils._rebuild_qtensor, storage, 0, (4,), (1,), scheme, False, {})


_TEN = torch.arange(10.0)
_LYING: dict[str, Callable[[], bytes]] = {
    "coo: an index outside": lambda: _coo(_longs(0, 9, shape=(1, 2)), torch.ones(2), (4,)),
    "coo: a negative index": lambda: _coo(_longs(0, -1, shape=(1, 2)), torch.ones(2), (4,)),
    "coo: fewer values": lambda: _coo(_longs(0, 1, 2, shape=(1, 3)), torch.ones(2), (4,)),
    "coo: expanded parts": lambda: _coo(
        torch.zeros(1, dtype=torch.int64).expand(1, 2**40), torch.zeros(1).expand(2**40), (4,)
    ),
    "nested: a part outside": lambda: _nested(_longs(11, shape=(1, 1)), _longs(1, shape=(1, 1)), _longs(0), _TEN),
    "nested: a negative offset": lambda: _nested(_longs(2, shape=(1, 1)), _longs(1, shape=(1, 1)), _longs(-5), _TEN),
    "nested: a huge stride": lambda: _nested(_longs(2, shape=(1, 1)), _longs(2**40, shape=(1, 1)), _longs(0), _TEN),
    "nested: 2^80 elements": lambda: _nested(
        _longs(2**40, 2**40, shape=(1, 2)), _longs(0, 0, shape=(1, 2)), _longs(0), _TEN
    ),
    "nested: expanded sizes": lambda: _nested(
        _longs(1, shape=(1, 1)).expand(2**20, 1),
        _longs(1, shape=(1, 1)).expand(2**20, 1),
        _longs(0).expand(2**20),
        _TEN,
    ),
    "quantized: a huge zero point": lambda: _quantized(2**62),
    "quantized: an axis outside": lambda: _quantized(0, axis=3),
    "quantized: too few scales": lambda: _quantized(0, axis=0),
}


@pytest.mark.parametrize("what", _LYING)
def test_parts_that_do_not_fit_together_are_refused(what: str) -> None:
    with pytest.raises(FormatError, match="do not fit together"):
        tensorkeep.load(_LYING[what](), framework="torch")


@pytest.mark.parametrize("what", _LYING)
def test_their_parts_can_be_looked_at_all_the_same(what: str) -> None:
    file = tensorkeep.open(_LYING[what]())
    assert all(lazy.shape is not None for lazy in file.values())
    assert file.tree["t"].parts


def test_a_nested_tensor_without_parts_is_empty() -> None:
    empty = torch.empty(0, 2, dtype=torch.int64)
    loaded = tensorkeep.load(_nested(empty, empty, _longs(), _TEN), framework="torch")["t"]
    assert loaded.size(0) == 0
    assert "nested" in repr(loaded)


@pytest.mark.parametrize(("kind", "index"), [("foo", None), ("cuda", 99999)])
def test_a_device_that_torch_does_not_know_stays_a_text(kind: str, index: int | None) -> None:
    loaded = tensorkeep.load(_saved(torch.device, kind, *([] if index is None else [index])), framework="torch")
    assert loaded["t"] == (kind if index is None else f"{kind}:{index}")


def test_a_device_of_a_negative_number_is_refused() -> None:
    with pytest.raises(FormatError, match="invalid device"):
        tensorkeep.load(_saved(torch.device, "cuda", -1))
