"""Loads to a GPU and saves from it, beside the peers and the limits of the machine: `make gpu`.

Each contender runs in a process of its own, some rounds in turns, and tells its seconds and its memory. The results
go to benchmarks/gpu.json. This program needs torch, NumPy, safetensors and what tensorkeep requires, and nothing else
of the development packages, so that it runs on a bare machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import torch

import tensorkeep
from benchmarks.gpu_files import make

_RESULTS: Final = Path(__file__).with_name("gpu.json")
_READ_NBYTES: Final = 2**24


def _load(path: Path, device: str) -> Any:
    return tensorkeep.torch.load_file(path, device=device)


def _load_together(path: Path, device: str) -> Any:
    with tensorkeep.staging(own=False):
        return _load(path, device)


def _load_by(engine: str) -> Callable[[Path, str], Any]:
    return lambda path, device: tensorkeep.load(path, framework="torch", device=device, engine=engine)


def _load_cold(load: Callable[[Path, str], Any]) -> Callable[[Path, str], Any]:
    """Return a load of a file that is no longer in the page cache."""

    def cold(path: Path, device: str) -> Any:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        started = time.perf_counter()
        loaded = load(path, device)
        _synchronize(device)
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
    buffers = [torch.empty(_READ_NBYTES, dtype=torch.uint8, pin_memory=_is_gpu(device)) for _ in range(2)]
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
        _synchronize(device)
        started = time.perf_counter()
        handle = tensorkeep.save_async(state, into, snapshot=place)
        took = time.perf_counter() - started
        handle.result()
        into.unlink()
        return took

    return save


def _save(path: Path, device: str) -> Any:
    return _timed_save(path, device, lambda state, into: tensorkeep.torch.save_file(state, into))


def _save_with_safetensors(path: Path, device: str) -> Any:
    from safetensors.torch import save_file

    return _timed_save(path, device, save_file)


def _timed_save(path: Path, device: str, save: Callable[[Any, Path], Any]) -> Any:
    state = tensorkeep.torch.load_file(path, device=device)
    into = path.with_suffix(".saved")
    _synchronize(device)
    started = time.perf_counter()
    save(state, into)
    took = time.perf_counter() - started
    into.unlink()
    return took


def _copies_to_host(path: Path, device: str) -> Any:
    """Copy the tensors to pinned memory, and write nothing."""
    state = tensorkeep.torch.load_file(path, device=device)
    buffer = torch.empty(_READ_NBYTES, dtype=torch.uint8, pin_memory=_is_gpu(device))
    _synchronize(device)
    started = time.perf_counter()
    for tensor in state.values():
        flat = tensor.view(-1).view(torch.uint8)
        for start in range(0, len(flat), _READ_NBYTES):
            part = flat[start : start + _READ_NBYTES]
            buffer[: len(part)].copy_(part, non_blocking=True)
    _synchronize(device)
    return time.perf_counter() - started


CONTENDERS: Final[dict[str, Callable[[Path, str], Any]]] = {
    "tensorkeep": _load,
    "tensorkeep, verified": _load_and_verify,
    "tensorkeep, together": _load_together,
    "tensorkeep, cold": _load_cold(_load),
    "safetensors": _load_with_safetensors,
    "safetensors, cold": _load_cold(_load_with_safetensors),
    "safetensors 0.9, prefetch": _prefetch_with_safetensors,
    "fastsafetensors": _load_by("fastsafetensors"),
    "InstantTensor": _load_by("instanttensor"),
    "Run:ai": _stream_with_runai,
    "tensorkeep, pickle": _load_pickle,
    "torch.load": _load_pickle_with_torch,
    "tensorkeep, numbers": _load_numbers,
    "tensorkeep, numbers of the CPU": _load_numbers_of_the_cpu,
    "tensorkeep, columns": _columns,
    "safetensors, columns": _columns_with_safetensors,
    "limit: pinned copies": _pinned_copies,
    "limit: reads": _read_by_all_cores,
    "tensorkeep, save": _save,
    "tensorkeep, snapshot on the host": _snapshot("host"),
    "tensorkeep, snapshot on the device": _snapshot("device"),
    "safetensors, save": _save_with_safetensors,
    "limit: copies to the host": _copies_to_host,
}
_LOADS: Final = (
    *("tensorkeep", "tensorkeep, verified", "safetensors", "safetensors 0.9, prefetch"),
    *("fastsafetensors", "InstantTensor", "Run:ai", "limit: pinned copies", "limit: reads"),
)
_OF_NEXT: Final = ("safetensors 0.9, prefetch",)
"""Contenders that need safetensors 0.9, which is installed elsewhere."""

_SNAPSHOTS: Final = ("tensorkeep, snapshot on the host", "tensorkeep, snapshot on the device")

CASES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "20,000 tensors of 2 kB": ("small.safetensors", ("tensorkeep", "tensorkeep, together", "safetensors")),
    "300 tensors of bf16, page cache": ("large.safetensors", _LOADS),
    "300 tensors of bf16, disk": ("large.safetensors", ("tensorkeep, cold", "safetensors, cold")),
    "300 tensors of bf16, tmpfs": ("tmpfs.safetensors", _LOADS),
    "a pickle": ("large.pt", ("tensorkeep, pickle", "torch.load")),
    "AWQ in 4 bits, loaded as bf16": (
        "awq.safetensors",
        ("tensorkeep, numbers", "tensorkeep, numbers of the CPU", "limit: pinned copies"),
    ),
    "a quarter of the columns": ("large.safetensors", ("tensorkeep, columns", "safetensors, columns")),
    "a background save, until it returns": ("tmpfs.safetensors", _SNAPSHOTS),
    "a save to tmpfs": (
        "tmpfs.safetensors",
        ("tensorkeep, save", "safetensors, save", "limit: copies to the host"),
    ),
}
"""Each case: its file, and who takes part."""


def _is_gpu(device: str) -> bool:
    return torch.device(device).type == "cuda"


def _synchronize(device: str) -> None:
    if _is_gpu(device):
        torch.cuda.synchronize(device)


def _measure(contender: str, path: Path, device: str) -> dict[str, float]:
    """Run a contender once, after a small load that starts the device; return seconds and bytes."""
    on_gpu = _is_gpu(device)
    torch.empty(1, device=device)
    _load(path.with_name("warm.safetensors"), device)
    _synchronize(device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = _private_nbytes()
    started = time.perf_counter()
    result = CONTENDERS[contender](path, device)
    _synchronize(device)
    took = result if isinstance(result, float) else time.perf_counter() - started
    return {
        "seconds": took,
        "host_nbytes": _private_nbytes() - before,
        "peak_nbytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "device_peak_nbytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "device_nbytes": torch.cuda.memory_allocated() if on_gpu else 0,
    }


def _private_nbytes() -> int:
    """Return the resident memory that is not a file's."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _rounds(case: str, path: Path, contenders: tuple[str, ...], options: argparse.Namespace) -> dict[str, Any]:
    """Let the contenders of a case run in turns, each time in a fresh process."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for number in range(options.rounds):
        for name in list(runs) if number % 2 == 0 else reversed(list(runs)):
            command = [sys.executable, "-m", "benchmarks.gpu", "--device", options.device, "--run", name, str(path)]
            paths = [*([str(options.next)] if name in _OF_NEXT else []), os.environ.get("PYTHONPATH", "")]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
            if done.returncode:
                print(f"{case}: no {name}: {done.stderr.strip().rpartition(chr(10))[2]}", file=sys.stderr)
                del runs[name]
                continue
            runs[name].append(json.loads(done.stdout))
    found: dict[str, Any] = {}
    for name, measured in runs.items():
        found[name] = {key: statistics.median(run[key] for run in measured) for key in measured[0]}
        speed = path.stat().st_size / found[name]["seconds"] / 1e9
        print(f"{case:36} {name:34} {found[name]['seconds']:8.3f} s {speed:7.2f} GB/s", flush=True)
    return found


def _machine(device: str) -> dict[str, str]:
    packages = ("tensorkeep", "torch", "safetensors", "fastsafetensors", "instanttensor", "numpy", "blake3")
    versions = []
    for name in packages:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return {
        "device": torch.cuda.get_device_name(device) if _is_gpu(device) else "CPU",
        "host": f"{os.cpu_count()} cores, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "software": ", ".join([f"Python {platform.python_version()}", *versions]),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure loads to a GPU.")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tensorkeep-gpu"))
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm/tensorkeep-gpu"))
    parser.add_argument("--nbytes", type=int, default=10 * 10**9, help="bytes of the large checkpoint")
    parser.add_argument("--tensors", type=int, default=20_000, help="small tensors")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose names contain this; results of others are kept")
    parser.add_argument("--keep", action="store_true", help="keep the files for another run")
    parser.add_argument("--next", type=Path, default=Path("wheels/next"), help="packages of safetensors 0.9")
    parser.add_argument("--results", type=Path, default=_RESULTS)
    parser.add_argument("--run", nargs=2, metavar=("CONTENDER", "PATH"), help="print the figures of one contender")
    return parser.parse_args(arguments)


def _measure_case(case: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the figures of a case; None if there is no room for its file."""
    name, contenders = CASES[case]
    path = (options.tmpfs if name.startswith("tmpfs") else options.folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() and shutil.disk_usage(path.parent).free < 3 * options.nbytes:  # a save is beside it
        print(f"{case}: no room in {path.parent}", file=sys.stderr)
        return None
    for each in (path.with_name("warm.safetensors"), path):
        if not each.exists():
            make(each, options.nbytes, options.tensors)
    return {"nbytes": path.stat().st_size, "results": _rounds(case, path, contenders, options)}


def main(arguments: list[str] | None = None) -> None:
    """Measure everything, and write the results."""
    options = _arguments(arguments)
    if options.run:
        print(json.dumps(_measure(options.run[0], Path(options.run[1]), options.device)))
        return
    before = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    report = {"machine": _machine(options.device), "rounds": options.rounds, "cases": before.get("cases", {})}
    for case in CASES:
        found = _measure_case(case, options) if options.only in case else None
        if found is not None:
            report["cases"][case] = found
            options.results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not options.keep:
        _remove_files(options)


def _remove_files(options: argparse.Namespace) -> None:
    for folder in (options.folder, options.tmpfs):
        for name in {"warm.safetensors", *(name for name, _ in CASES.values())}:
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # it has files of others
            folder.rmdir()


if __name__ == "__main__":
    main()
