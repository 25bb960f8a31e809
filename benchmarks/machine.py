"""The machine a run was measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import msgspec

__all__ = ["Machine", "describe_machine"]

_LIBRARIES = (
    "tensorkeep",
    "safetensors",
    "torch",
    "numpy",
    "msgspec",
    "blake3",
    "huggingface_hub",
    "transformers",
    "accelerate",
    "gguf",
    "h5py",
    "keras",
    "onnx",
    "flax",
    "jax",
    "jaxlib",
    "orbax-checkpoint",
    "mlx",
    "ml_dtypes",
    "tensorflow-cpu",
    "paddlepaddle",
    "pyarrow",
    "ztensor",
)


class Machine(msgspec.Struct, frozen=True):
    """The machine a run was measured on, in words.

    Attributes:
        hardware: Processor, cores, memory.
        system: Kernel, and the file system of the files.
        software: Python and the libraries, with versions.
        n_busy: The load average of the minute before, in cores.
    """

    hardware: str
    system: str
    software: str
    n_busy: float


def describe_machine(folder: Path) -> Machine:
    """Describe this machine.

    Args:
        folder: Where the files go.
    """
    memory_nbytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    libraries = [f"{library} {version(library)}" for library in _LIBRARIES]
    return Machine(
        hardware=f"{_processor()}, {os.cpu_count()} cores, {memory_nbytes / 2**30:.0f} GiB of memory",
        system=f"{platform.system()} {platform.release().split('-')[0]}, files on {_file_system(folder)}",
        software=", ".join([f"Python {platform.python_version()}", *libraries]),
        n_busy=round(os.getloadavg()[0], 1),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Return the type of the mount that a directory is under."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    around = [(len(point), kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(around)[1]
