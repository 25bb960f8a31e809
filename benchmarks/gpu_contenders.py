"""What `benchmarks.gpu` measures: each contender takes the path of a file and a device.

It returns what it has loaded, or its seconds if only a part of what it does counts.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch

import tensorkeep

_READ_NBYTES: Final = 2**24


def is_gpu(device: str) -> bool:
    """Whether a device is one of CUDA."""
    return torch.device(device).type == "cuda"


def synchronize(device: str) -> None:
    """Wait until a GPU has done everything."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


def _load(path: Path, device: str) -> Any:
    return tensorkeep.torch.load_file(path, device=device)


def _load_together(path: Path, device: str) -> Any:
    with tensorkeep.staging(own=False):
        return _load(path, device)


def _load_with_fastsafetensors(path: Path, device: str) -> Any:
    """Load views of its buffer, which needs the file to stay open."""
    from fastsafetensors import fastsafe_open

    file = fastsafe_open([str(path)], framework="pt", device=device, nogds=True)
    return file, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict


def _load_with_instanttensor(path: Path, device: str) -> Any:
    from instanttensor import safe_open

    with safe_open([str(path)], framework="pt", device=device) as file:
        return dict(file.tensors())


def _load_cold(load: Callable[[Path, str], Any]) -> Callable[[Path, str], Any]:
    """Return a load of a file that is no longer in the page cache."""

    def cold(path: Path, device: str) -> Any:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        started = time.perf_counter()
        loaded = load(path, device)
        synchronize(device)
        took = time.perf_counter() - started
        del loaded
        return took

    return cold


def _load_and_verify(path: Path, device: str) -> Any:
    return tensorkeep.load(path, framework="torch", device=device, verify=True)


def _load_with_safetensors(path: Path, device: str) -> Any:
    from safetensors.torch import load_file

    return load_file(path, device=device)


def _prefetch_with_safetensors(path: Path, device: str) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="pt", device=device) as file, file.prefetch() as loader:
        return dict(loader)


def _stream_with_runai(path: Path, device: str) -> Any:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(str(path), device=device)
        return {name: tensor.to(device) for name, tensor in streamer.get_tensors()}


def _load_pickle(path: Path, device: str) -> Any:
    return tensorkeep.load(path, framework="torch", device=device)


def _load_pickle_with_torch(path: Path, device: str) -> Any:
    return torch.load(path, map_location=device, mmap=True, weights_only=True)


def _load_numbers(path: Path, device: str) -> Any:
    return tensorkeep.load(path, framework="torch", device=device, dequantize="bf16")


def _load_numbers_of_the_cpu(path: Path, device: str) -> Any:
    numbers = tensorkeep.load(path, framework="torch", dequantize="bf16")
    return {name: numbers.pop(name).to(device) for name in list(numbers)}


def _load_to_jax(path: Path, device: str) -> Any:
    jax = _jax()
    place = device.replace("cuda", "gpu")
    return jax.block_until_ready(tensorkeep.load(path, framework="jax", device=place))


def _load_to_jax_by_dlpack(path: Path, device: str) -> Any:
    jax = _jax()
    tensors = _load(path, device)
    return jax.block_until_ready([jax.dlpack.from_dlpack(tensor) for tensor in tensors.values()])


def _jax() -> Any:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it leaves no memory for torch
    import jax

    return jax


def _load_to_cupy(path: Path, device: str) -> Any:
    return tensorkeep.load(path, framework="cupy", device=device)


def _load_to_cupy_by_dlpack(path: Path, device: str) -> Any:
    import cupy

    return [cupy.from_dlpack(tensor) for tensor in _load(path, device).values()]


def _columns(path: Path, device: str) -> Any:
    with tensorkeep.open(path, framework="torch", device=device) as opened:
        return [lazy[:, : lazy.shape[1] // 4] for lazy in opened.values()]


def _columns_with_safetensors(path: Path, device: str) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="pt", device=device) as file:
        names = list(file.keys())
        slices = [file.get_slice(name) for name in names]
        return [each[:, : each.get_shape()[1] // 4] for each in slices]


def _pinned_copies(path: Path, device: str) -> Any:
    """Copy as many bytes from two pinned buffers, and read nothing."""
    into = torch.empty(path.stat().st_size, dtype=torch.uint8, device=device)
    buffers = [torch.empty(_READ_NBYTES, dtype=torch.uint8, pin_memory=is_gpu(device)) for _ in range(2)]
    for n, start in enumerate(range(0, len(into), _READ_NBYTES)):
        part = into[start : start + _READ_NBYTES]
        part.copy_(buffers[n % 2][: len(part)], non_blocking=True)
    return into


def _read_by_all_cores(path: Path, device: str) -> Any:  # noqa: ARG001 - like the others
    """Read the file into a few buffers, by a thread for each core."""
    n_threads = min(16, os.cpu_count() or 1)
    buffers = [bytearray(_READ_NBYTES) for _ in range(n_threads)]
    nbytes = path.stat().st_size
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(n_threads) as readers:

        def read(thread: int) -> None:
            for start in range(thread * _READ_NBYTES, nbytes, n_threads * _READ_NBYTES):
                os.preadv(file.fileno(), [memoryview(buffers[thread])[: nbytes - start]], start)

        list(readers.map(read, range(n_threads)))
    return buffers


def _snapshot(place: Any) -> Callable[[Path, str], Any]:
    """Return a background save, timed until training may continue; an earlier one has made its memory."""

    def save(path: Path, device: str) -> Any:
        state = tensorkeep.torch.load_file(path, device=device)
        into = path.with_name("saved.safetensors")
        tensorkeep.save_async(state, into).result()
        synchronize(device)
        started = time.perf_counter()
        handle = tensorkeep.save_async(state, into, snapshot=place)
        took = time.perf_counter() - started
        handle.result()
        into.unlink()
        return took

    return save


def _save(path: Path, device: str) -> Any:
    return _timed_save(path, device, lambda state, into: tensorkeep.torch.save_file(state, into))


def _save_with_digests(path: Path, device: str) -> Any:
    return _timed_save(path, device, lambda state, into: tensorkeep.save(state, into, durable=False))


def _save_with_torchs_dcp(path: Path, device: str) -> Any:
    import torch.distributed.checkpoint as dcp

    return _timed_save(path, device, lambda state, into: dcp.save(state, checkpoint_id=into, no_dist=True))


def _save_through_torchs_dcp(path: Path, device: str) -> Any:
    import torch.distributed.checkpoint as dcp

    from tensorkeep.integrations.distributed import TensorkeepWriter

    def save(state: Any, into: Path) -> None:
        into.mkdir()
        dcp.save(state, storage_writer=TensorkeepWriter(into, durable=False), no_dist=True)

    return _timed_save(path, device, save)


def _save_with_safetensors(path: Path, device: str) -> Any:
    from safetensors.torch import save_file

    return _timed_save(path, device, save_file)


def _timed_save(path: Path, device: str, save: Callable[[Any, Path], Any]) -> Any:
    state = tensorkeep.torch.load_file(path, device=device)
    into = path.with_suffix(".saved")
    synchronize(device)
    started = time.perf_counter()
    save(state, into)
    took = time.perf_counter() - started
    if into.is_dir():
        shutil.rmtree(into)
    else:
        into.unlink()
    return took


def _copies_to_host(path: Path, device: str) -> Any:
    """Copy the tensors to pinned memory, and write nothing."""
    state = tensorkeep.torch.load_file(path, device=device)
    buffer = torch.empty(_READ_NBYTES, dtype=torch.uint8, pin_memory=is_gpu(device))
    synchronize(device)
    started = time.perf_counter()
    for tensor in state.values():
        flat = tensor.view(-1).view(torch.uint8)
        for start in range(0, len(flat), _READ_NBYTES):
            part = flat[start : start + _READ_NBYTES]
            buffer[: len(part)].copy_(part, non_blocking=True)
    synchronize(device)
    return time.perf_counter() - started


def _write_by_all_cores(path: Path, device: str) -> Any:  # noqa: ARG001 - like the others
    """Write as many bytes to a new file beside it, by a thread for each core, and copy nothing."""
    n_threads = min(16, os.cpu_count() or 1)
    buffer = memoryview(bytes(_READ_NBYTES))
    nbytes = path.stat().st_size
    into = path.with_suffix(".saved")
    started = time.perf_counter()
    with into.open("wb", buffering=0) as file, ThreadPoolExecutor(n_threads) as writers:

        def write(start: int) -> None:
            os.pwrite(file.fileno(), buffer[: nbytes - start], start)

        list(writers.map(write, range(0, nbytes, _READ_NBYTES)))
    took = time.perf_counter() - started
    into.unlink()
    return took


CONTENDERS: Final[dict[str, Callable[[Path, str], Any]]] = {
    "tensorkeep": _load,
    "tensorkeep, verified": _load_and_verify,
    "tensorkeep, together": _load_together,
    "tensorkeep, cold": _load_cold(_load),
    "safetensors": _load_with_safetensors,
    "safetensors, cold": _load_cold(_load_with_safetensors),
    "safetensors 0.9, prefetch": _prefetch_with_safetensors,
    "fastsafetensors": _load_with_fastsafetensors,
    "InstantTensor": _load_with_instanttensor,
    "Run:ai": _stream_with_runai,
    "tensorkeep, pickle": _load_pickle,
    "torch.load": _load_pickle_with_torch,
    "tensorkeep, numbers": _load_numbers,
    "tensorkeep, numbers of the CPU": _load_numbers_of_the_cpu,
    "tensorkeep, JAX": _load_to_jax,
    "tensorkeep, JAX by DLPack": _load_to_jax_by_dlpack,
    "tensorkeep, CuPy": _load_to_cupy,
    "tensorkeep, CuPy by DLPack": _load_to_cupy_by_dlpack,
    "tensorkeep, columns": _columns,
    "safetensors, columns": _columns_with_safetensors,
    "limit: pinned copies": _pinned_copies,
    "limit: reads": _read_by_all_cores,
    "limit: reads, cold": _load_cold(_read_by_all_cores),
    "tensorkeep, save": _save,
    "tensorkeep, save with digests": _save_with_digests,
    "tensorkeep, snapshot on the host": _snapshot("host"),
    "tensorkeep, snapshot on the device": _snapshot("device"),
    "safetensors, save": _save_with_safetensors,
    "tensorkeep, save of a rank": _save_through_torchs_dcp,
    "torch's dcp, save of a rank": _save_with_torchs_dcp,
    "limit: copies to the host": _copies_to_host,
    "limit: writes": _write_by_all_cores,
}
