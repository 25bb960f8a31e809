"""tensorkeep keeps tensors safe: it stores, inspects, moves and loads them without ever running code from a file.

    tensorkeep.open(path)                          a read-only mapping of name to lazy tensor, of any kind;
                                                   `file["w"][10:20, ::2]` reads only those rows
    tensorkeep.load(path)                          the saved state: nested data, and tensors that share memory
    tensorkeep.materialize(file.tree["model"])     the tensors of a part of it, with the memory that they share
    tensorkeep.save(state, path)                   save tensors or nested data to one file, completely or not at all
    tensorkeep.save_checkpoint(state, directory)   the same in shards with an index
    tensorkeep.save_async(state, path)             the same in the background, while training continues
    tensorkeep.CheckpointStore(root)               the checkpoints of a run: keeps the last and the best
    tensorkeep.verify(path)                        check every byte against the digests that were saved
    tensorkeep.check(path)                         do the tensors make sense together, and for a model?
    tensorkeep.diff(a, b)                          how two open checkpoints differ
    tensorkeep.statistics(file)                    what the numbers of tensors are like
    tensorkeep.show(file["w"])                     a picture of a tensor or a checkpoint, for notebooks
    tensorkeep.writing(directory, plan)            write a checkpoint tensor by tensor, completely or not at all
    tensorkeep.reshard(path, directory)            rewrite a checkpoint with other shards, names or dtypes
    tensorkeep.reshard_for_ranks(path, directory, 8)  divide it for tensor parallelism, a directory for each rank
    tensorkeep.join(paths, directory)              put the tensors of several checkpoints into one
    tensorkeep.edit(path)                          rename tensors and change metadata in place
    tensorkeep.add_sha256(path)                    add the SHA-256 of each shard to the index
    tensorkeep.add_block_digests(path)             let slices be checked without the rest
    tensorkeep.convert(source, destination)        convert a checkpoint of any kind to safetensors
    tensorkeep.export(source, target)              write a checkpoint of any kind as .npz or another format
    tensorkeep.sign(path, key)                     sign a checkpoint; `open` and others with trust=... check it
    tensorkeep.scan(path)                          what a pickle would run if another program loaded it
    tensorkeep.remote(url)                         a URL with options for reading it, accepted wherever a path is
    tensorkeep.fetch(url, directory)               download a whole checkpoint, completely or not at all
    tensorkeep.push(directory, url)                publish a checkpoint on the Hub or in a bucket, in one step
    tensorkeep.follow(url)                         the steps of a run as they come, as patches

    tensorkeep.torch, tensorkeep.numpy             the functions of safetensors.torch and safetensors.numpy
    tensorkeep.safe_open, serialize, deserialize   those of safetensors
    tensorkeep.jax                                 pytrees of JAX, restored by a template
    tensorkeep.install_as_safetensors()            let libraries that import safetensors use all of this instead

    tensorkeep.errors        every error, in one tree
    tensorkeep.transport     Where are the bytes?               files, memory, servers; atomic writes
    tensorkeep.formats       What do they mean?                 safetensors, PyTorch's pickles
    tensorkeep.arrays        Who holds the tensor?              NumPy, torch
    tensorkeep.state         nested data                        containers, numbers and text as nodes, and back
    tensorkeep.tensors       one file, where these three meet   lazy tensors, indexing, views, writing
    tensorkeep.layout        Which file stores what?            file names, shards, the index
    tensorkeep.signing       Who published it?                  keys, signatures
    tensorkeep.trust         Whose signatures count?            policies
    tensorkeep.kinds         What is at a path?                 one folder per kind of checkpoint
    tensorkeep.scanner       What would a file run?             every name in a pickle, and what it would do
    tensorkeep.checkpoint    many files as one                  saved, verified, compared and rewritten
    tensorkeep.measuring     statistics of tensors              extremes, mean, spread, histograms, NaNs
    tensorkeep.checking      sense and nonsense in weights      layers, names, shapes, ties against a model
    tensorkeep.quantized               packed words and scales          which tensors they are, and their numbers
    tensorkeep.merging       one model of several               averages, SLERP, TIES, DARE, task arithmetic
    tensorkeep.transforms    other forms of a model             experts, vocabulary, sparsity, key maps
    tensorkeep.patches       what turns one into another        small files, applied, undone, looked through
    tensorkeep.pictures      pictures of tensors, checkpoints   HTML and SVG for notebooks
    tensorkeep.store         many checkpoints                   the last and the best; nothing is written twice
    tensorkeep.tensor_parallel   one model for many ranks   directories that each rank reads alone
    tensorkeep.conversion    any kind to safetensors
    tensorkeep.exporting     any kind to other formats
    tensorkeep.fetching      downloads                          parallel, resumed, verified
    tensorkeep.publishing    uploads to the Hub and to buckets  tensorkeep.push
    tensorkeep.models        checkpoints into models            tensorkeep.torch.load_into
    tensorkeep.runs          whole states of any library        tensorkeep.keras.capture and restore
    tensorkeep.training      whole training states              tensorkeep.torch.capture and restore
    tensorkeep.server        a directory over HTTP              tensorkeep serve
    tensorkeep.viewing       a checkpoint in a browser          tensorkeep view

`import tensorkeep` imports none of these: names are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorkeep.on_demand import find_on_demand

if TYPE_CHECKING:
    from tensorkeep.checking import CheckFinding, CheckReport, check
    from tensorkeep.checkpoint import (
        CheckpointWriter,
        DataDiff,
        Diff,
        SaveHandle,
        TensorDiff,
        add_block_digests,
        add_sha256,
        diff,
        edit,
        join,
        load,
        materialize,
        release_snapshots,
        reshard,
        save_async,
        save_checkpoint,
        verify,
        writing,
    )
    from tensorkeep.checkpoint import open_checkpoint as open
    from tensorkeep.compat import TensorSpec, deserialize, safe_open, serialize, serialize_file
    from tensorkeep.conversion import Conversion, convert
    from tensorkeep.encryption import Encryption, Key
    from tensorkeep.errors import SafetensorError, StateError, TensorkeepError
    from tensorkeep.exporting import Export, export
    from tensorkeep.fetching import fetch
    from tensorkeep.formats.pickles import PickleLimits, Unknown
    from tensorkeep.install import install_as_safetensors
    from tensorkeep.kinds import Finding, Opened, Verification
    from tensorkeep.kinds.dcp import DistributedCheckpoint
    from tensorkeep.kinds.pickles import PickleFile, PickleSet
    from tensorkeep.kinds.ranks import RankedCheckpoint
    from tensorkeep.kinds.safetensors import Checkpoint, SavedDirectory, TensorFile
    from tensorkeep.measuring import Histogram, TensorStatistics, statistics
    from tensorkeep.patches import follow
    from tensorkeep.pictures import Picture, show
    from tensorkeep.publishing import Push, push
    from tensorkeep.scanner import ScanFinding, ScannedFile, ScanReport, scan
    from tensorkeep.signing import sign
    from tensorkeep.state import NamedData
    from tensorkeep.store import CheckpointStore
    from tensorkeep.tensor_parallel import RankDivision, reshard_for_ranks
    from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView, combine, save, staging
    from tensorkeep.transport.remote import remote
    from tensorkeep.trust import Policy

__version__ = "0.1.0"

__all__ = [
    "CheckFinding",
    "CheckReport",
    "Checkpoint",
    "CheckpointStore",
    "CheckpointWriter",
    "Conversion",
    "DataDiff",
    "Diff",
    "DistributedCheckpoint",
    "Encryption",
    "Export",
    "Finding",
    "Histogram",
    "Key",
    "LazyTensor",
    "LazyTensors",
    "NamedData",
    "Opened",
    "PickleFile",
    "PickleLimits",
    "PickleSet",
    "Picture",
    "Policy",
    "Push",
    "RankDivision",
    "RankedCheckpoint",
    "SafetensorError",
    "SaveHandle",
    "SavedDirectory",
    "ScanFinding",
    "ScanReport",
    "ScannedFile",
    "StateError",
    "TensorDiff",
    "TensorFile",
    "TensorSpec",
    "TensorStatistics",
    "TensorView",
    "TensorkeepError",
    "Unknown",
    "Verification",
    "__version__",
    "add_block_digests",
    "add_sha256",
    "check",
    "combine",
    "convert",
    "deserialize",
    "diff",
    "edit",
    "export",
    "fetch",
    "follow",
    "install_as_safetensors",
    "join",
    "load",
    "materialize",
    "open",
    "push",
    "release_snapshots",
    "remote",
    "reshard",
    "reshard_for_ranks",
    "safe_open",
    "save",
    "save_async",
    "save_checkpoint",
    "scan",
    "serialize",
    "serialize_file",
    "show",
    "sign",
    "staging",
    "statistics",
    "verify",
    "writing",
]

_NAMES = {
    "checking": "CheckFinding CheckReport check",
    "checkpoint": "CheckpointWriter DataDiff Diff SaveHandle TensorDiff add_block_digests add_sha256 diff edit join "
    "load materialize release_snapshots reshard save_async save_checkpoint verify writing",
    "compat": "TensorSpec deserialize safe_open serialize serialize_file",
    "conversion": "Conversion convert",
    "encryption": "Encryption Key",
    "errors": "SafetensorError StateError TensorkeepError",
    "exporting": "Export export",
    "fetching": "fetch",
    "formats.pickles": "PickleLimits Unknown",
    "install": "install_as_safetensors",
    "kinds": "Finding Opened Verification",
    "kinds.dcp": "DistributedCheckpoint",
    "kinds.pickles": "PickleFile PickleSet",
    "kinds.ranks": "RankedCheckpoint",
    "kinds.safetensors": "Checkpoint SavedDirectory TensorFile",
    "measuring": "Histogram TensorStatistics statistics",
    "patches": "follow",
    "pictures": "Picture show",
    "publishing": "Push push",
    "scanner": "ScanFinding ScanReport ScannedFile scan",
    "signing": "sign",
    "state": "NamedData",
    "store": "CheckpointStore",
    "tensor_parallel": "RankDivision reshard_for_ranks",
    "tensors": "LazyTensor LazyTensors TensorView combine save staging",
    "transport.remote": "remote",
    "trust": "Policy",
}
"""Each module, and the public names that it defines."""

_MODULES = (
    "arrays",
    "checking",
    "checkpoint",
    "compat",
    "conversion",
    "digests",
    "dtypes",
    "encryption",
    "entries",
    "errors",
    "exporting",
    "fetching",
    "flax",
    "formats",
    "jax",
    "keras",
    "kinds",
    "layout",
    "limits",
    "markup",
    "measuring",
    "merging",
    "mlx",
    "models",
    "numpy",
    "paddle",
    "parallel",
    "patches",
    "pictures",
    "publishing",
    "quantized",
    "runs",
    "sampling",
    "scanner",
    "server",
    "signing",
    "state",
    "store",
    "tensor_parallel",
    "tensorflow",
    "tensors",
    "torch",
    "training",
    "transforms",
    "transport",
    "trust",
    "viewing",
)
"""The public modules."""


_HOMES = (
    {module: f"{__name__}.{module}" for module in _MODULES}
    | {name: f"{__name__}.{module}:{name}" for module, names in _NAMES.items() for name in names.split()}
    # A function named `open` would hide the builtin in its module
    | {"open": f"{__name__}.checkpoint:open_checkpoint"}
)
"""Where each of them is."""


def __getattr__(name: str) -> Any:
    return find_on_demand(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
