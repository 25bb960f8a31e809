"""What a tensor that was only located holds, compared with what torch loads."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401 - teaches NumPy the names of its dtypes
import numpy as np
import torch

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.formats.pickles.values._document import PickleDocument
from tensorkeep.formats.pickles.values._records import CompositeRecord, StorageRecord, TensorRecord


def array_of(record: TensorRecord, document: PickleDocument, file: bytes) -> np.ndarray:
    """Return the elements of a located tensor, in C order."""
    assert record.storage is not None
    dtype = ALL_BY_NAME[record.dtype]
    span = document.spans[record.storage.key]
    assert len(span) == record.storage.nbytes
    storage = np.frombuffer(file[span.start : span.stop], dtype.bits_name)[record.offset :]  # as_strided knows no fp8
    strides = tuple(stride * dtype.itemsize for stride in record.strides)
    view = np.lib.stride_tricks.as_strided(storage, record.shape, strides)
    array = np.ascontiguousarray(view).view(dtype.numpy).reshape(record.shape)
    array = array.conj() if record.is_conj else array
    return -array if record.is_neg else array


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the elements of a tensor of torch, in C order."""
    packed = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return packed.view(torch.uint8).numpy().tobytes()


def assert_same(ours: Any, loaded: Any, document: PickleDocument, file: bytes) -> None:
    """Compare a value with what torch made of the same file, tensors by every byte."""
    if isinstance(loaded, torch.Tensor) and loaded.layout is not torch.strided:
        assert type(ours) is CompositeRecord
        for name, part in (("indices", loaded._indices()), ("values", loaded._values())):
            assert_same(ours.parts[name], part, document, file)
    elif isinstance(loaded, torch.Tensor):
        assert type(ours) is TensorRecord
        assert (ours.shape, ours.requires_grad) == (tuple(loaded.shape), loaded.requires_grad)
        assert ALL_BY_NAME[ours.dtype].torch == str(loaded.dtype).removeprefix("torch.")
        assert (ours.kind == "parameter") == isinstance(loaded, torch.nn.Parameter)
        assert array_of(ours, document, file).tobytes() == bytes_of(loaded)
    elif isinstance(loaded, torch.UntypedStorage | torch.TypedStorage):
        assert type(ours) is StorageRecord
        span = document.spans[ours.key]
        assert file[span.start : span.stop] == bytes(loaded.untyped())
    elif isinstance(loaded, dict):
        assert list(ours) == list(loaded)
        for key, value in loaded.items():
            assert_same(ours[key], value, document, file)
    elif isinstance(loaded, list | tuple):
        assert type(ours) is type(loaded)
        assert len(ours) == len(loaded)
        for mine, theirs in zip(ours, loaded, strict=True):
            assert_same(mine, theirs, document, file)
    else:
        assert ours == loaded
        assert type(ours) is type(loaded)
