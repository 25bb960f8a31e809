"""Loads to a GPU and saves from it, beside the peers and the limits of the machine: `make gpu`.

Each contender runs in a process of its own: once with a small file, which imports and starts everything, and then
some times with the real one. It tells its seconds and its memory. The results go to benchmarks/gpu.json and the page
docs/benchmarks-gpu.md. This program needs torch, NumPy, safetensors and what tensorkeep requires, and of the
development packages only pytest, so that it runs on a bare machine. After eight minutes, tests included, no case or
contender begins.
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
import tempfile
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Self

import torch

from benchmarks.gpu_contenders import CONTENDERS, is_gpu, synchronize
from benchmarks.gpu_files import make
from benchmarks.gpu_page import LARGE, PAGE, RESULTS, SAVE, SMALL, page

_ROOT: Final = Path(__file__).parents[1]
_TESTS: Final = ("-m", "pytest", "tests/gpu", "-q", "-rs", "-c", os.devnull, "--rootdir", ".")
_ON_A_BARE_MACHINE: Final = ("--noconftest", "-p", "no:cacheprovider")
_WARM_NBYTES: Final = 4_000_000
_TIMEOUT_S: Final = 90
"""After this, a contender has no figures, and the next one runs."""

_DRY_RUN: Final = "--device cpu --nbytes 3000000 --tensors 100 --repeats 2 --tests"
"""What `--dry-run` measures, in a folder that is removed."""

_LOADS: Final = (
    *("tensorkeep", "tensorkeep, verified", "safetensors", "safetensors 0.9, prefetch"),
    *("fastsafetensors", "InstantTensor", "Run:ai", "limit: pinned copies", "limit: reads"),
)
_OF_NEXT: Final = ("safetensors 0.9, prefetch",)
"""Contenders that need safetensors 0.9, which is installed elsewhere."""

_SNAPSHOTS: Final = ("tensorkeep, snapshot on the host", "tensorkeep, snapshot on the device")

CASES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    LARGE: ("large.safetensors", _LOADS),
    SMALL: ("small.safetensors", ("tensorkeep", "tensorkeep, together", "safetensors")),
    SAVE: (
        "tmpfs.safetensors",
        (
            *("tensorkeep, save", "tensorkeep, save with digests", "safetensors, save"),
            *("limit: copies to the host", "limit: writes"),
        ),
    ),
    "a background save, until it returns": ("tmpfs.safetensors", _SNAPSHOTS),
    "a save of 20,000 tensors of 2 kB": ("small.safetensors", ("tensorkeep, save", "safetensors, save")),
    "a save by torch.distributed.checkpoint to tmpfs": (
        "tmpfs.safetensors",
        ("tensorkeep, save of a rank", "torch's dcp, save of a rank"),
    ),
    "a quarter of the columns": ("large.safetensors", ("tensorkeep, columns", "safetensors, columns")),
    "300 tensors of bf16, tmpfs": ("tmpfs.safetensors", _LOADS),
    "300 tensors of bf16, disk": (
        "large.safetensors",
        ("tensorkeep, cold", "safetensors, cold", "limit: reads, cold"),
    ),
    "a pickle": ("large.pt", ("tensorkeep, pickle", "torch.load")),
    "AWQ in 4 bits, loaded as bf16": (
        "awq.safetensors",
        ("tensorkeep, numbers", "tensorkeep, numbers of the CPU", "limit: pinned copies"),
    ),
    "300 tensors of f16, JAX and CuPy": (
        "half.safetensors",
        ("tensorkeep, JAX", "tensorkeep, JAX by DLPack", "tensorkeep, CuPy", "tensorkeep, CuPy by DLPack"),
    ),
}
"""Each case: its file, and who takes part. The first ones matter most: time may run out."""

_READ_PART: Final = {"a quarter of the columns": 0.25}
"""What part of the file a case reads, if not all of it."""


def _measure(contender: str, path: Path, device: str, repeats: int) -> dict[str, float]:
    """Run a contender some times, after once with a small file; return seconds and bytes."""
    on_gpu = is_gpu(device)
    run = CONTENDERS[contender]
    run(path.with_name(f"warm.{path.name}"), device)
    synchronize(device)
    is_pinned_private = _is_pinned_private() if on_gpu else True
    before = _private_nbytes()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_peak_host_memory_stats()
    seconds: list[float] = []
    device_nbytes = 0
    with _PeakMemory() as memory:
        for _ in range(repeats):
            started = time.perf_counter()
            result = run(path, device)
            synchronize(device)
            took = time.perf_counter() - started
            seconds.append(result if isinstance(result, float) else took)
            device_nbytes = torch.cuda.memory_allocated() if on_gpu else 0
            del result
    pinned_nbytes = torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0) if on_gpu else 0
    return {
        "seconds": statistics.median(seconds),
        "host_nbytes": memory.peak_nbytes - before + (0 if is_pinned_private else pinned_nbytes),
        "pinned_nbytes": pinned_nbytes,
        "peak_nbytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "device_peak_nbytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "device_nbytes": device_nbytes,
    }


class _PeakMemory(threading.Thread):
    """Looks at the memory of this process while something else runs.

    Attributes:
        peak_nbytes: The most that it has seen.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_nbytes = _private_nbytes()
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        """Look, some fifty times a second."""
        while not self._is_over.wait(0.02):
            self.peak_nbytes = max(self.peak_nbytes, _private_nbytes())


def _private_nbytes() -> int:
    """Return the resident memory that is not a file's."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _is_pinned_private() -> bool:
    """Say whether this driver's pinned memory is among what `_private_nbytes` returns."""
    before = _private_nbytes()
    pinned = torch.empty(2**26, dtype=torch.uint8, pin_memory=True).fill_(1)
    return _private_nbytes() - before > len(pinned) // 2


def _rounds(
    case: str, path: Path, contenders: tuple[str, ...], options: argparse.Namespace, end: float
) -> dict[str, Any]:
    """Let the contenders of a case run in turns, each time in a fresh process."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for number in range(options.rounds):
        for name in list(runs) if number % 2 == 0 else reversed(list(runs)):
            found = _run(name, path, options) if time.monotonic() <= end else "no time left"
            if isinstance(found, str):
                print(f"{case}: no {name}: {found}", file=sys.stderr)
                del runs[name]
            else:
                runs[name].append(found)
    results: dict[str, Any] = {}
    nbytes = path.stat().st_size * _READ_PART.get(case, 1)
    for name, measured in ((name, of_name) for name, of_name in runs.items() if of_name):
        results[name] = {key: statistics.median(run[key] for run in measured) for key in measured[0]}
        speed = nbytes / results[name]["seconds"] / 1e9
        print(f"{case:36} {name:34} {results[name]['seconds']:8.3f} s {speed:7.2f} GB/s", flush=True)
    return results


def _run(contender: str, path: Path, options: argparse.Namespace) -> dict[str, float] | str:
    """Return the figures of a contender, from a process of its own, or why there are none."""
    how = ["--device", options.device, "--repeats", str(options.repeats)]
    command = [sys.executable, "-m", "benchmarks.gpu", *how, "--run", contender, str(path)]
    paths = [*([str(options.next)] if contender in _OF_NEXT else []), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"not done in {_TIMEOUT_S} seconds"
    if done.returncode:
        return done.stderr.strip().rpartition("\n")[2]
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _machine(device: str) -> dict[str, str]:
    packages = ("tensorkeep", "torch", "safetensors", "fastsafetensors", "instanttensor", "jax", "numpy", "blake3")
    versions = []
    for name in packages:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return {
        "device": torch.cuda.get_device_name(device) if is_gpu(device) else "CPU",
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
    parser.add_argument("--rounds", type=int, default=1, help="processes of each contender, in turns with the others")
    parser.add_argument("--repeats", type=int, default=3, help="runs in each process")
    parser.add_argument("--seconds", type=int, default=480, help="after this, no case or contender begins")
    parser.add_argument("--only", default="", help="cases whose names contain this; results of others are kept")
    parser.add_argument("--keep", action="store_true", help="keep the files for another run")
    parser.add_argument("--next", type=Path, default=Path("wheels/next"), help="packages of safetensors 0.9")
    parser.add_argument("--results", type=Path, default=RESULTS, help="what is written, with a page beside it")
    parser.add_argument("--tests", action="store_true", help="run tests/gpu first")
    parser.add_argument("--dry-run", action="store_true", help="try this very program without a GPU, in a minute")
    parser.add_argument("--run", nargs=2, metavar=("CONTENDER", "PATH"), help="print the figures of one contender")
    return parser.parse_args(arguments)


def _measure_case(case: str, options: argparse.Namespace, end: float) -> dict[str, Any] | None:
    """Return the figures of a case; None if there is no room for its file."""
    name, contenders = CASES[case]
    path = (options.tmpfs if name.startswith("tmpfs") else options.folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() and shutil.disk_usage(path.parent).free < 3 * options.nbytes:  # a save is beside it
        print(f"{case}: no room in {path.parent}", file=sys.stderr)
        return None
    for each, nbytes, n_small in (
        (path.with_name(f"warm.{name}"), _WARM_NBYTES, 100),
        (path, options.nbytes, options.tensors),
    ):
        if not each.exists():
            make(each, nbytes, n_small)
    nbytes = path.stat().st_size
    read_nbytes = int(nbytes * _READ_PART.get(case, 1))
    return {"nbytes": nbytes, "read_nbytes": read_nbytes, "results": _rounds(case, path, contenders, options, end)}


def main(arguments: list[str] | None = None) -> None:
    """Measure everything, and write the results and the page; a failed test makes this program fail in the end."""
    options = _arguments(arguments)
    if options.run:
        print(json.dumps(_measure(options.run[0], Path(options.run[1]), options.device, options.repeats)))
    elif options.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            places = ["--folder", f"{folder}/disk", "--tmpfs", f"{folder}/tmpfs", "--results", f"{folder}/gpu.json"]
            os.environ["TENSORKEEP_STAND_IN"] = "1"
            _measure_all(_arguments([*_DRY_RUN.split(), *places]))
            print(_page_of(Path(folder) / "gpu.json").read_text(encoding="utf-8"))
    else:
        _measure_all(options)


def _measure_all(options: argparse.Namespace) -> None:
    end = time.monotonic() + options.seconds
    before = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    report = before | {
        "machine": _machine(options.device),
        "rounds": options.rounds,
        "repeats": options.repeats,
        "cases": before.get("cases", {}),
    }
    are_passed = True
    if options.tests:
        are_passed, report["tests"] = _run_tests(options.seconds / 2)
        _write(report, options.results)
    for case in CASES:
        if options.only not in case:
            continue
        if time.monotonic() > end:
            print(f"{case}: no time left of {options.seconds} seconds", file=sys.stderr)
            continue
        found = _measure_case(case, options, end)
        if found is not None:
            report["cases"][case] = found
            _write(report, options.results)
    if not options.keep:
        _remove_files(options)
    if not are_passed:
        sys.exit("tests failed")


def _run_tests(timeout_s: float) -> tuple[bool, str]:
    """Run the tests that need a GPU; return whether all passed, and their own summary."""
    command = [sys.executable, *_TESTS, *_ON_A_BARE_MACHINE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s, cwd=_ROOT)
    except subprocess.TimeoutExpired:
        return False, f"not done in {timeout_s:.0f} seconds"
    print(done.stdout, done.stderr, flush=True)
    return done.returncode == 0, done.stdout.strip().rpartition("\n")[2].strip("= ")


def _write(report: dict[str, Any], results: Path) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    _page_of(results).write_text(page(report), encoding="utf-8")


def _page_of(results: Path) -> Path:
    return PAGE if results == RESULTS else results.with_suffix(".md")


def _remove_files(options: argparse.Namespace) -> None:
    for folder in (options.folder, options.tmpfs):
        for name, _ in CASES.values():
            (folder / name).unlink(missing_ok=True)
            (folder / f"warm.{name}").unlink(missing_ok=True)
        with suppress(OSError):  # it has files of others
            folder.rmdir()


if __name__ == "__main__":
    main()
