"""Says whether a tensor is the one that running its pickle gave, of every layout, and where in memory it is."""

from __future__ import annotations

from typing import Any

import torch

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats.pickles import CompositeRecord, TensorRecord
from tensorkeep.tensors import LazyTensor

BITS = {torch.bits8: torch.uint8, torch.bits16: torch.uint16}
"""What has no numbers comes as integers."""
COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
QUANTIZED = {"data": "int_repr", "scales": "q_per_channel_scales", "zero_points": "q_per_channel_zero_points"}


class TensorComparison:
    """Compares the tensors of two values; memory that is shared in one must be shared in the other."""

    def __init__(self) -> None:
        self._ours_of: dict[int, int] = {}
        self._theirs_of: dict[int, int] = {}
        self._kept: list[torch.UntypedStorage] = []

    def compare(self, ours: Any, theirs: torch.Tensor, at: str) -> None:
        """Compare what stands for a tensor: it loaded, lazy, or a record of its parts."""
        plain = _plain(theirs)
        if isinstance(ours, LazyTensor):
            assert_lazy_same(ours, plain, at)
        elif type(ours) is TensorRecord:
            assert (plain.device.type, ours.storage) == ("meta", None), at
            assert (ours.shape, ours.strides) == (tuple(plain.shape), plain.stride()), at
        elif type(ours) is CompositeRecord:
            self._lazy_parts(ours, plain, at)
        else:
            assert isinstance(ours, torch.Tensor), f"{at}: {type(ours)} is no tensor"
            assert ours.is_leaf, f"{at}: has a history"
            assert ours.requires_grad == theirs.requires_grad, f"{at}.requires_grad: not {theirs.requires_grad}"
            self._loaded(ours, plain, at)

    def _lazy_parts(self, ours: CompositeRecord, theirs: torch.Tensor, at: str) -> None:
        is_plain = theirs.layout is torch.strided and not theirs.is_nested and not theirs.is_quantized
        assert not is_plain, f"{at}: {ours.kind}"
        for name, part in ours.parts.items():
            assert type(part) is LazyTensor, f"{at}.{name}: {part!r}"
            if not theirs.is_nested:
                is_hidden = theirs.layout is torch.sparse_coo
                whole = getattr(theirs, f"_{name}" if is_hidden else QUANTIZED.get(name, name))()
                assert_lazy_same(part, whole, f"{at}.{name}")

    def _loaded(self, ours: torch.Tensor, theirs: torch.Tensor, at: str) -> None:
        for fact in ("layout", "dtype", "is_nested", "is_quantized", "device"):
            assert getattr(ours, fact) == getattr(theirs, fact), f"{at}.{fact}: not {getattr(theirs, fact)}"
        if theirs.is_nested:
            self._nested(ours, theirs, at)
            return
        assert ours.shape == theirs.shape, f"{at}: {ours.shape} is not {theirs.shape}"
        if theirs.layout is torch.sparse_coo:
            assert ours.is_coalesced() == theirs.is_coalesced(), at
            self._parts(ours, theirs, ("_indices", "_values"), at)
        elif theirs.layout in COMPRESSED:
            self._parts(ours, theirs, (*COMPRESSED[theirs.layout], "values"), at)
        elif theirs.is_quantized:
            self._quantized(ours, theirs, at)
        else:
            self._strided(ours, theirs, at)

    def _parts(self, ours: torch.Tensor, theirs: torch.Tensor, names: tuple[str, ...], at: str) -> None:
        for name in names:
            own, other = (getattr(tensor.detach(), name)() for tensor in (ours, theirs))
            self._loaded(own, other, f"{at}.{name}")

    def _nested(self, ours: torch.Tensor, theirs: torch.Tensor, at: str) -> None:
        if theirs.layout is torch.jagged:
            assert ours._ragged_idx == theirs._ragged_idx, at
            assert (ours.lengths() is None) == (theirs.lengths() is None), at
        parts = ours.detach().unbind(), theirs.detach().unbind()
        assert len(parts[0]) == len(parts[1]), at
        for place, (own, other) in enumerate(zip(*parts, strict=True)):
            self._loaded(own, other, f"{at}<{place}>")

    def _quantized(self, ours: torch.Tensor, theirs: torch.Tensor, at: str) -> None:
        assert ours.stride() == theirs.stride(), f"{at}: strides {ours.stride()}, {theirs.stride()}"
        assert ours.qscheme() == theirs.qscheme(), at
        if theirs.qscheme() == torch.per_tensor_affine:
            assert (ours.q_scale(), ours.q_zero_point()) == (theirs.q_scale(), theirs.q_zero_point()), at
        else:
            assert ours.q_per_channel_axis() == theirs.q_per_channel_axis(), at
            self._parts(ours, theirs, ("q_per_channel_scales", "q_per_channel_zero_points"), at)
        assert torch.equal(ours.int_repr(), theirs.int_repr()), f"{at}: {ours} is not {theirs}"

    def _strided(self, ours: torch.Tensor, theirs: torch.Tensor, at: str) -> None:
        assert ours.stride() == theirs.stride(), f"{at}: strides {ours.stride()}, {theirs.stride()}"
        assert (ours.is_conj(), ours.is_neg()) == (theirs.is_conj(), theirs.is_neg()), at
        if theirs.device.type != "meta":
            self._memory(ours, theirs, at)
            assert torch.equal(_bytes_of(ours), _bytes_of(theirs)), f"{at}: {ours} is not {theirs}"

    def _memory(self, ours: torch.Tensor, theirs: torch.Tensor, at: str) -> None:
        """Tensors share memory where they did, and lie in it where they did."""
        storages = ours.untyped_storage(), theirs.untyped_storage()
        assert storages[0].nbytes() == storages[1].nbytes(), f"{at}: storages of {[s.nbytes() for s in storages]}"
        assert ours.storage_offset() == theirs.storage_offset(), at
        if storages[1].nbytes():
            self._kept += storages  # or other memory could come to the same place
            own, other = (storage.data_ptr() for storage in storages)
            assert self._ours_of.setdefault(other, own) == own, f"{at}: shares no memory, as it did"
            assert self._theirs_of.setdefault(own, other) == other, f"{at}: shares memory, as it did not"


def assert_lazy_same(ours: LazyTensor, theirs: torch.Tensor, at: str = "") -> None:
    """Compare what a lazy tensor of torch loads with a strided tensor.

    Args:
        ours: The lazy tensor.
        theirs: The tensor; neither its strides nor its gradients matter.
        at: Where it stands.
    """
    theirs = _plain(theirs)
    loaded = ours.load()
    assert loaded.dtype == theirs.dtype, f"{at}: {loaded.dtype}"
    assert loaded.shape == theirs.shape, f"{at}: {loaded.shape}"
    is_pairs = ALL_BY_NAME[ours.dtype].is_packed
    assert is_pairs or ours.shape == tuple(theirs.shape), f"{at}: {ours.shape}"
    marks = (loaded.is_contiguous(), loaded.requires_grad, loaded.is_conj(), loaded.is_neg())
    assert marks == (True, False, False, False), f"{at}: contiguous, gradients, conjugate, negative {marks}"
    assert torch.equal(_bytes_of(loaded), _bytes_of(theirs)), f"{at}: {loaded} is not {theirs}"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same tensor without gradients, class and attributes; bits without numbers as integers."""
    plain = tensor.detach()
    plain = plain if type(plain) is torch.Tensor or plain.is_nested else plain.as_subclass(torch.Tensor)
    return plain.view(BITS[plain.dtype]) if plain.dtype in BITS else plain


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
