"""`TensorFile` and `LazyTensor` as values: a mapping, pickled, forked, shared by threads, closed."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import (
    HeaderError,
    SourceChangedError,
    SourceMissingError,
    TensorkeepError,
    TensorNotFoundError,
    UnsupportedError,
)
from tests.support.tensors.plain_files import WAYS, Known, file_of, opened, same_bits

EACH_WAY = pytest.mark.parametrize("way", WAYS)
TENSORS = {"layer.0.weight": Known.random("F32", (6, 5)), "layer.0.bias": Known.random("F32", (5,), 1)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(TENSORS))
    return path


def test_a_file_is_a_mapping(path: Path) -> None:
    with tensorkeep.open(path) as file:
        assert isinstance(file, Mapping)
        assert dict(file).keys() == file.keys() == TENSORS.keys()
        assert len(file) == 2
        assert "layer.0.bias" in file
        assert "layer.1.bias" not in file
        assert not file.__contains__(3)
        assert file.get("nothing") is None
        assert [lazy.name for lazy in file.values()] == list(TENSORS)
        assert repr(file) == f"TensorFile({str(path)!r}, 2 tensors, 140 bytes)"


def test_a_lazy_tensor_knows_itself(path: Path) -> None:
    lazy = tensorkeep.open(path)["layer.0.weight"]

    assert (lazy.name, lazy.dtype, lazy.shape, lazy.ndim) == ("layer.0.weight", "F32", (6, 5), 2)
    assert (lazy.n_elements, lazy.nbytes, lazy.data_offsets) == (30, 120, (0, 120))
    assert repr(lazy) == "LazyTensor('layer.0.weight', F32, [6, 5], 120 bytes)"


def test_metadata_is_a_copy(tmp_path: Path) -> None:
    tensorkeep.save({}, tmp_path / "a", metadata={"k": "v"}, digests=False)
    file = tensorkeep.open(tmp_path / "a")
    file.metadata["k"] = "other"

    assert file.metadata == {"k": "v"}
    assert tensorkeep.open(file_of({})).metadata == {}


def test_a_name_that_is_not_there_is_met_with_the_nearest(path: Path) -> None:
    with tensorkeep.open(path) as file:
        with pytest.raises(
            TensorNotFoundError, match=r"does not contain tensor layer.0.wieght.*Did you mean `layer.0.weight`"
        ):
            file["layer.0.wieght"]
        with pytest.raises(KeyError):
            file.load(["layer.0.bias", "none"])
        for odd in (3, None, ("a",), b"layer.0.bias"):
            with pytest.raises(TensorNotFoundError):
                file[odd]  # type: ignore[index]


@EACH_WAY
def test_after_close_nothing_is_read(way: str) -> None:
    with opened(file_of(TENSORS), way) as file:
        lazy, tensors = file["layer.0.weight"], file.load()
    file.close()

    assert same_bits(tensors["layer.0.weight"], TENSORS["layer.0.weight"].array)
    assert file.keys() == TENSORS.keys()
    reads: list[Callable[[], Any]] = [lambda: file["layer.0.bias"], file.load]
    for read in reads:
        with pytest.raises(TensorkeepError, match="File is closed"):
            read()
    if way != "file object":  # which is the caller's, and still open
        reads = [lambda: lazy[0], lazy.load, lambda: np.asarray(lazy)]
        for read in reads:
            with pytest.raises(TensorkeepError):
                read()


def test_a_caller_s_file_object_stays_open(path: Path) -> None:
    with path.open("rb") as stream:
        tensorkeep.open(stream).close()

        assert not stream.closed
        assert same_bits(tensorkeep.load(stream)["layer.0.bias"], TENSORS["layer.0.bias"].array)


def test_a_descriptor_is_given_back_when_opening_fails(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"no safetensors file at all")
    before = len(os.listdir("/proc/self/fd"))
    caught = []
    for _ in range(20):
        with pytest.raises(HeaderError) as error:
            tensorkeep.open(tmp_path / "bad")
        caught.append(str(error.value))
    error.value.__traceback__ = None

    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_it_pickles_as_its_path(path: Path, backend: Any, framework: str) -> None:
    with tensorkeep.open(path, backend=backend, framework=framework) as file:
        pickled = pickle.dumps((file, file["layer.0.bias"]))
    copy, lazy = pickle.loads(pickled)

    assert len(pickled) < 2_000
    assert copy.keys() == TENSORS.keys()
    assert type(copy["layer.0.weight"][0]).__module__.partition(".")[0] == framework
    assert np.asarray(lazy[1:3]).tobytes() == TENSORS["layer.0.bias"].array[1:3].tobytes()


def test_a_file_that_changed_since_it_was_pickled_is_an_error(path: Path) -> None:
    pickled = pickle.dumps(tensorkeep.open(path))
    path.with_name("other").write_bytes(file_of(TENSORS))
    path.with_name("other").replace(path)

    with pytest.raises(SourceChangedError, match="changed after this was pickled"):
        pickle.loads(pickled)
    path.unlink()
    with pytest.raises(SourceMissingError):
        pickle.loads(pickled)


def row_sum(lazy: tensorkeep.LazyTensor, row: int) -> bytes:
    return bytes(lazy[row].tobytes())


def test_lazy_tensors_go_to_worker_processes(path: Path) -> None:
    lazy = tensorkeep.open(path)["layer.0.weight"]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        rows = list(workers.map(row_sum, [lazy] * 6, range(6)))

    assert rows == [row.tobytes() for row in TENSORS["layer.0.weight"].array]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_fork_reads_on(path: Path, backend: str) -> None:
    program = f"""
import os
import numpy as np
import tensorkeep
file = tensorkeep.open({str(path)!r}, backend={backend!r})
lazy = file["layer.0.weight"]
expected = lazy[...].tobytes()
pids = []
for _ in range(3):
    pid = os.fork()
    if not pid:
        loaded = file.load()
        loaded["layer.0.weight"][...] = 0
        os._exit(0 if all(lazy[...].tobytes() == expected for _ in range(200)) else 1)
    pids.append(pid)
assert all(file["layer.0.weight"].load().tobytes() == expected for _ in range(200))
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@EACH_WAY
def test_threads_share_a_file(way: str) -> None:
    known = Known.random("F16", (64, 33))
    with opened(file_of({"odd": Known.random("U8", (1,)), "w": known}), way) as file:
        start = threading.Barrier(8)

        def read(worker: int) -> bool:
            start.wait()
            lazy = file["w"]
            parts = all(same_bits(lazy[row :: worker + 1], known.array[row :: worker + 1]) for row in range(64))
            return parts and all(same_bits(file.load()["w"], known.array) for _ in range(10))

        with ThreadPoolExecutor(8) as workers:
            assert all(workers.map(read, range(8)))


@pytest.mark.parametrize(
    "make",
    [lambda content: content, bytearray, memoryview, io.BytesIO, lambda content: np.frombuffer(content, np.uint8)],
    ids=["bytes", "bytearray", "memoryview", "BytesIO", "array"],
)
def test_bytes_in_memory_are_a_file_too(make: Callable[[bytes], Any]) -> None:
    loaded = tensorkeep.load(make(file_of(TENSORS)))

    assert all(same_bits(loaded[name], known.array) for name, known in TENSORS.items())


def test_tensors_never_share_memory_with_the_caller_s_bytes() -> None:
    content = bytearray(file_of(TENSORS))
    with tensorkeep.open(content) as file:
        loaded, part = file.load(), file["layer.0.bias"][...]
    content[-140:] = bytes(140)

    assert same_bits(loaded["layer.0.bias"], TENSORS["layer.0.bias"].array)
    assert same_bits(part, TENSORS["layer.0.bias"].array)
    content.clear()  # nothing holds it any more


@pytest.mark.parametrize(
    "options", [{"framework": "theano"}, {"framework": "numpy", "device": "cuda"}, {"backend": "fast"}]
)
def test_an_unknown_option_is_refused(path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError):
        tensorkeep.load(path, **options)


def test_devices_of_torch_are_torch_s(path: Path) -> None:
    import torch

    for device in ("cpu", torch.device("cpu"), "meta"):
        with tensorkeep.open(path, framework="torch", device=device) as file:
            assert file.load()["layer.0.bias"].device == torch.device(device)
            assert file["layer.0.bias"][1:].device == torch.device(device)


def test_a_header_over_the_caller_s_limit_is_refused(path: Path) -> None:
    with pytest.raises(HeaderError, match="header too large"):
        tensorkeep.open(path, max_header_nbytes=10)
