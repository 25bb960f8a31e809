"""Nested values that are hard to walk: shared, deep, or holding themselves."""

from __future__ import annotations

import io
import pickle
import sys
import time
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import LimitError, PickleError, TensorkeepError
from tensorkeep.limits import MAX_GRAPH_DEPTH


def _nested(depth: int, kind: type) -> Any:
    value: Any = kind()
    for _ in range(depth - 1):
        value = kind([value])
    return value


def _below(n_frames: int, work: Any) -> Any:
    return work() if not n_frames else _below(n_frames - 1, work)


@pytest.mark.parametrize("kind", [list, tuple, frozenset])
def test_the_deepest_value_is_copied_far_down_the_stack(kind: type) -> None:
    data = pickle.dumps(_nested(MAX_GRAPH_DEPTH, kind), 4)
    assert _below(200, lambda: tensorkeep.load(data)) == _nested(MAX_GRAPH_DEPTH, kind)


def test_tuples_that_are_too_deep_for_python_are_an_error_of_ours() -> None:
    limits = tensorkeep.PickleLimits(max_depth=1_000)
    assert tensorkeep.load(b"\x80\x04" + b"]" * 700 + b"a" * 699 + b".", limits=limits)
    nested = b"\x80\x04)" + b"\x85" * 700 + b"."
    with pytest.raises(LimitError, match="nested too deep"):
        _below(sys.getrecursionlimit() // 2, lambda: tensorkeep.load(nested, limits=limits))


def test_shared_tuples_are_copied_once() -> None:
    doubled = b"\x80\x04)" + b"2\x86" * 17 + b"."
    started = time.thread_time()
    value = tensorkeep.load(doubled)
    assert len(tensorkeep.open(doubled)) == 0
    assert time.thread_time() - started < 5
    assert value[0] is value[1]


def test_a_list_that_holds_itself_is_refused() -> None:
    with pytest.raises(PickleError, match="contains itself"):
        tensorkeep.load(b"\x80\x04]\x94h\x00a.")


def test_a_storage_within_the_pickle_of_a_legacy_file() -> None:
    class Inner:
        def __reduce__(self) -> Any:
            buffer = io.BytesIO()
            torch.save(torch.arange(3.0).storage()._untyped_storage, buffer, _use_new_zipfile_serialization=False)
            return torch.storage._load_from_bytes, (buffer.getvalue(),)

    for is_zip in (True, False):
        buffer = io.BytesIO()
        torch.save({"a": torch.ones(2), "inner": Inner()}, buffer, _use_new_zipfile_serialization=is_zip)
        loaded = tensorkeep.load(buffer.getvalue())
        assert loaded["inner"].view(np.float32).tolist() == [0.0, 1.0, 2.0]
        assert loaded["a"].tolist() == [1.0, 1.0]


def test_containers_keep_their_types() -> None:
    value = {"o": OrderedDict(a=1), "d": defaultdict(list, {1: [2]})}
    loaded = tensorkeep.load(pickle.dumps(value))
    assert type(loaded["o"]) is OrderedDict
    assert type(loaded["d"]) is defaultdict
    assert loaded == value


_DTYPE = b"cnumpy\ndtype\n\x8c\x02V8\x89\x88\x87R"


@pytest.mark.parametrize(
    "state",
    [
        b"(K\x03\x8c\x01|N\x8c\x01a\x85}\x8c\x01ah\x00K\x00\x86sK\x08K\x01K\x00t",
        b"(K\x03\x8c\x01|N\x8c\x01a\x85}K\x08K\x01K\x00t",
        b"(K\x03\x8c\x01|N\x8c\x01a\x85}\x8c\x01aK\x00K\x00\x86sK\x08K\x01K\x00t",
        b"(K\x03\x8c\x01|h\x00K\x02\x85\x86NNK\x08K\x01K\x00t",
    ],
    ids=["itself as a field", "a field that is missing", "a field that is a number", "an array of itself twice"],
)
def test_a_dtype_with_impossible_fields_is_refused(state: bytes) -> None:
    with pytest.raises(TensorkeepError):
        tensorkeep.load(b"\x80\x04" + _DTYPE + b"\x94" + state + b"bh\x00" + state + b"b0.")


def test_fields_of_structured_arrays_come_back() -> None:
    array = np.array([((1, 2.5), "ab")], [("p", [("x", "<i4"), ("y", ">f8")]), ("name", "U3")])
    loaded = tensorkeep.load(pickle.dumps(array))
    assert loaded.dtype == array.dtype
    assert loaded.tolist() == array.tolist()
