"""tensorkeep keeps tensors safe: it stores, inspects, moves and loads them without ever running code from a file.

    tensorkeep.open(path)       a read-only mapping of name to lazy tensor; `file["w"][10:20, ::2]` reads those rows;
                                also of what torch.save wrote, of which nothing is run
    tensorkeep.load(path)       the state that was saved: nested data and tensors, which share memory as they did
    tensorkeep.scan(path)       what files of pickles would run if they were loaded by others
    tensorkeep.convert(source, destination)             a file of pickles as a safe checkpoint
    tensorkeep.save(state, path)                        tensors, or any nested data, to a file, complete or not at all
    tensorkeep.save_checkpoint(state, directory)        the same to a directory, in shards with an index
    tensorkeep.save_async(state, path)                  the same in the background, while training goes on
    tensorkeep.CheckpointStore(root)                    the checkpoints of a run: the last, the best, found again
    tensorkeep.reshard(path, directory)                 a checkpoint written anew: other shards, names, dtypes
    tensorkeep.merge(paths, directory)                  several checkpoints as one
    tensorkeep.edit(path)       names of tensors and metadata, changed in place
    tensorkeep.add_sha256(path)                         the SHA-256 of each shard, written into the index
    tensorkeep.verify(path)     whether every byte is the one that was saved
    tensorkeep.diff(a, b)       what is different in two open checkpoints
    tensorkeep.remote(url)      a URL with what it takes to read it, wherever a path goes
    tensorkeep.fetch(url, directory)                    all of a remote checkpoint on the disk, complete or not at all

    tensorkeep.torch, tensorkeep.numpy                  the functions of safetensors.torch and safetensors.numpy
    tensorkeep.safe_open, serialize, deserialize, …     those of safetensors
    tensorkeep.install_as_safetensors()                 and all of it under their name, for libraries that import it

    tensorkeep.errors           every error, one tree
    tensorkeep.transport        where are the bytes?        files, memory, servers; written whole or not at all
    tensorkeep.formats          what do they mean?          the safetensors format, PyTorch's pickles
    tensorkeep.arrays           who holds the tensor?       NumPy, torch
    tensorkeep.state            nested data                 containers, numbers, texts … as nodes, and back
    tensorkeep.tensors          one file, where these meet  lazy tensors, selections, views, writing
    tensorkeep.layout           which file holds what?      file names, shards, the index
    tensorkeep.kinds            what is at a path?          safetensors, pickles, what ranks wrote: one folder each
    tensorkeep.scanner          what would they run?        every name in files of pickles, and what it would do
    tensorkeep.checkpoint       many files                  shards, index, digests; saved and verified as one
    tensorkeep.store            the checkpoints of a run    steps, the last and the best, nothing written twice
    tensorkeep.conversion       of any kind                 pickles to safetensors, and what became of them
    tensorkeep.fetching         from other machines         whole checkpoints, in parallel, resumed and checked
    tensorkeep.models           what uses them              checkpoints into models: tensorkeep.torch.load_into
    tensorkeep.server           served                      a directory over HTTP: tensorkeep serve
    tensorkeep.training         training                    all that a run needs to go on: tensorkeep.torch.capture

`import tensorkeep` loads none of this: names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorkeep.checkpoint import (
        DataDiff,
        Diff,
        SaveHandle,
        TensorDiff,
        add_sha256,
        diff,
        edit,
        load,
        merge,
        release_snapshots,
        reshard,
        save_async,
        save_checkpoint,
        verify,
    )
    from tensorkeep.checkpoint import open_checkpoint as open
    from tensorkeep.compat import TensorSpec, deserialize, safe_open, serialize, serialize_file
    from tensorkeep.conversion import Conversion, convert
    from tensorkeep.errors import SafetensorError, StateError, TensorkeepError
    from tensorkeep.fetching import fetch
    from tensorkeep.formats.pickles import PickleLimits, Unknown
    from tensorkeep.install import install_as_safetensors
    from tensorkeep.kinds import Finding, Verification
    from tensorkeep.kinds.dcp import DistributedCheckpoint
    from tensorkeep.kinds.pickles import PickleFile, PickleSet
    from tensorkeep.kinds.safetensors import Checkpoint
    from tensorkeep.scanner import ScanFinding, ScannedFile, ScanReport, scan
    from tensorkeep.state import NamedData
    from tensorkeep.store import CheckpointStore
    from tensorkeep.tensors import LazyTensor, LazyTensors, TensorFile, TensorView, save
    from tensorkeep.transport.remote import remote

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "CheckpointStore",
    "Conversion",
    "DataDiff",
    "Diff",
    "DistributedCheckpoint",
    "Finding",
    "LazyTensor",
    "LazyTensors",
    "NamedData",
    "PickleFile",
    "PickleLimits",
    "PickleSet",
    "SafetensorError",
    "SaveHandle",
    "ScanFinding",
    "ScanReport",
    "ScannedFile",
    "StateError",
    "TensorDiff",
    "TensorFile",
    "TensorSpec",
    "TensorView",
    "TensorkeepError",
    "Unknown",
    "Verification",
    "__version__",
    "add_sha256",
    "convert",
    "deserialize",
    "diff",
    "edit",
    "fetch",
    "install_as_safetensors",
    "load",
    "merge",
    "open",
    "release_snapshots",
    "remote",
    "reshard",
    "safe_open",
    "save",
    "save_async",
    "save_checkpoint",
    "scan",
    "serialize",
    "serialize_file",
    "verify",
]

_HOMES = {
    "Checkpoint": ("kinds.safetensors", "Checkpoint"),
    "Conversion": ("conversion", "Conversion"),
    "DataDiff": ("checkpoint", "DataDiff"),
    "Diff": ("checkpoint", "Diff"),
    "DistributedCheckpoint": ("kinds.dcp", "DistributedCheckpoint"),
    "Finding": ("kinds", "Finding"),
    "LazyTensor": ("tensors", "LazyTensor"),
    "LazyTensors": ("tensors", "LazyTensors"),
    "PickleFile": ("kinds.pickles", "PickleFile"),
    "PickleLimits": ("formats.pickles", "PickleLimits"),
    "PickleSet": ("kinds.pickles", "PickleSet"),
    "SafetensorError": ("errors", "SafetensorError"),
    "TensorDiff": ("checkpoint", "TensorDiff"),
    "TensorFile": ("tensors", "TensorFile"),
    "TensorView": ("tensors", "TensorView"),
    "TensorSpec": ("compat", "TensorSpec"),
    "TensorkeepError": ("errors", "TensorkeepError"),
    "Unknown": ("formats.pickles", "Unknown"),
    "Verification": ("kinds", "Verification"),
    "add_sha256": ("checkpoint", "add_sha256"),
    "convert": ("conversion", "convert"),
    "deserialize": ("compat", "deserialize"),
    "diff": ("checkpoint", "diff"),
    "edit": ("checkpoint", "edit"),
    "fetch": ("fetching", "fetch"),
    "install_as_safetensors": ("install", "install_as_safetensors"),
    "load": ("checkpoint", "load"),
    "merge": ("checkpoint", "merge"),
    "open": ("checkpoint", "open_checkpoint"),
    "reshard": ("checkpoint", "reshard"),
    "safe_open": ("compat", "safe_open"),
    "save": ("tensors", "save"),
    "NamedData": ("state", "NamedData"),
    "CheckpointStore": ("store", "CheckpointStore"),
    "SaveHandle": ("checkpoint", "SaveHandle"),
    "StateError": ("errors", "StateError"),
    "release_snapshots": ("checkpoint", "release_snapshots"),
    "remote": ("transport.remote", "remote"),
    "save_async": ("checkpoint", "save_async"),
    "ScanFinding": ("scanner", "ScanFinding"),
    "ScanReport": ("scanner", "ScanReport"),
    "ScannedFile": ("scanner", "ScannedFile"),
    "scan": ("scanner", "scan"),
    "save_checkpoint": ("checkpoint", "save_checkpoint"),
    "serialize": ("compat", "serialize"),
    "serialize_file": ("compat", "serialize_file"),
    "verify": ("checkpoint", "verify"),
}
"""Each public name, and the module and name that it stands for."""


_MODULES = (
    "arrays",
    "checkpoint",
    "compat",
    "conversion",
    "digests",
    "dtypes",
    "entries",
    "errors",
    "fetching",
    "formats",
    "kinds",
    "layout",
    "limits",
    "models",
    "numpy",
    "parallel",
    "scanner",
    "server",
    "state",
    "store",
    "tensors",
    "torch",
    "training",
    "transport",
)
"""The public modules."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
