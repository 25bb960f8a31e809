"""Open whatever is at a path, and load it: the first kind that recognizes it decides how."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, overload

from tensorkeep.arrays import DEFAULT_FRAMEWORK, Framework, library_for
from tensorkeep.checkpoint._unread import warn_of_unread
from tensorkeep.checkpoint.verifying import run_checks
from tensorkeep.encryption import KeyLike, Keys
from tensorkeep.errors import SourceChangedError, SourceMissingError, UnsupportedError
from tensorkeep.formats.pickles import DEFAULT_LIMITS, Dangerous, PickleLimits
from tensorkeep.kinds import Found, LoadOptions, Opened, OpenOptions, Place, policy_for, refuse
from tensorkeep.kinds.registry import find_kind, hint_for_directory
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.on_demand import imported
from tensorkeep.parallel import Progress
from tensorkeep.state import Classes
from tensorkeep.tensors import Selector, Ties, check_ties
from tensorkeep.transport import BACKENDS, Backend, Openable, is_remote, listing_cache

if TYPE_CHECKING:
    from typing import Unpack

    import cupy
    import jax
    import mlx.core as mx
    import paddle
    import tensorflow as tf
    import torch
    from numpy.typing import NDArray

    from tensorkeep.arrays import (
        CupyName,
        JaxName,
        MlxName,
        NumpyName,
        PaddleName,
        TensorflowName,
        TorchName,
    )
    from tensorkeep.checkpoint._keywords import LoadKeywords, OpenKeywords
    from tensorkeep.checkpoint._trusted_open import Demand
    from tensorkeep.trust import Trust

_DEMAND: Final = "tensorkeep.checkpoint._trusted_open:demand_of"
"""Imported by name: most who open a checkpoint ask for no signature."""

_ATTEMPTS = 4
"""How often a remote checkpoint is read before giving up, if saves keep replacing it during the read."""


@overload
def open_checkpoint(
    target: Openable, *, framework: NumpyName = ..., **options: Unpack[OpenKeywords]
) -> Opened[NDArray[Any]]: ...
@overload
def open_checkpoint(
    target: Openable, *, framework: TorchName, **options: Unpack[OpenKeywords]
) -> Opened[torch.Tensor]: ...
@overload
def open_checkpoint(
    target: Openable, *, framework: JaxName, **options: Unpack[OpenKeywords]
) -> Opened[jax.Array]: ...
@overload
def open_checkpoint(
    target: Openable, *, framework: TensorflowName, **options: Unpack[OpenKeywords]
) -> Opened[tf.Tensor]: ...
@overload
def open_checkpoint(target: Openable, *, framework: MlxName, **options: Unpack[OpenKeywords]) -> Opened[mx.array]: ...
@overload
def open_checkpoint(
    target: Openable, *, framework: PaddleName, **options: Unpack[OpenKeywords]
) -> Opened[paddle.Tensor]: ...
@overload
def open_checkpoint(
    target: Openable, *, framework: CupyName, **options: Unpack[OpenKeywords]
) -> Opened[cupy.ndarray]: ...
@overload
def open_checkpoint(target: Openable, *, framework: Framework, **options: Unpack[OpenKeywords]) -> Opened: ...
def open_checkpoint(
    target: Openable,
    *,
    framework: Framework = "numpy",
    device: Any = "cpu",
    backend: Backend = "auto",
    variant: str | None = None,
    check: bool = True,
    verify: bool = False,
    strict: bool = False,
    dangerous: Dangerous = "refuse",
    limits: PickleLimits = DEFAULT_LIMITS,
    max_header_nbytes: int = MAX_HEADER_NBYTES,
    engine: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    trust: Trust | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> Opened:
    """Open a checkpoint: a read-only mapping of name to `LazyTensor`.

    Only headers and the index are read. They are checked against each other and against the digests saved with them.
    Checkpoints from other libraries, which have no digests, open as well. An HDF5 file is listed, and checked as a
    whole, when something asks for all of it.

    Untrusted `torch.save` files are safe to open: their pickles are parsed, and nothing in them is run. A directory
    written by torch.distributed.checkpoint opens too, with each tensor assembled from the parts that ranks wrote.

    Args:
        target: A directory, an index, a file, its bytes, or a seekable binary file object.
        framework: The array library for tensors: `"numpy"`, `"torch"`, `"jax"`, `"tensorflow"`, `"mlx"`, `"paddle"`
            or `"cupy"`; or `"flax"`, which is jax with 64-bit numbers converted as jax converts them.
        device: The device for tensors, in the library's own terms: anything that torch accepts, a `jax.Device` or
            `jax.sharding.Sharding`, `"/GPU:0"` for TensorFlow, `mx.gpu`, `"gpu:0"` for Paddle.
        backend: `"mmap"`, `"pread"`, or `"auto"`: mmap unless the file is on a network or FUSE file system. If a
            mapped file is truncated, touching it kills the process (SIGBUS); `"pread"` raises an error instead.
        variant: Which checkpoint to open in a directory: `"fp16"` finds `model.fp16.safetensors` or its shards.
        check: Whether to compare headers with their saved digests. Pass False to read a checkpoint that another
            program changed on purpose.
        verify: Whether to compare what is read with its digest: whole tensors, and parts of them with the digests of
            their blocks. Without these, the first part reads the whole tensor once. Files of pickles are compared
            with the checksums in their archives when they are opened, if they have any.
        strict: Whether to refuse a pickle that holds anything but tensors and plain data. Otherwise, objects that
            are not known to be data become an inert `Unknown`.
        dangerous: What to do with names in a pickle that could only do harm, such as `os.system`: `"refuse"` the
            file, or `"record"` them as inert objects like any other.
        limits: Bounds on what the pickle of each file may cost.
        max_header_nbytes: Longest header to accept, in bytes, for a single file.
        engine: The library that reads the files instead of tensorkeep, such as `"tensorstore"` for orbax. Its parser
            is fed the bytes of the files, so name one only for files that you trust. For safetensors files, it loads
            whole tensors of torch: `"instanttensor"`, `"fastsafetensors"` or `"safetensors"`.
        dtypes: Dtypes that the file does not say, such as bfloat16 in NumPy's files: name or shell pattern to
            dtype, as in `{"w": "bfloat16"}`.
        trust: Whose signatures count: a `Policy`, the path of one or of a public key. Then only what they signed is
            opened: the index and headers are compared with the signature now, and tensors when they are read. Files
            without digests are read whole; on a server, they are refused. None takes the policy that the environment
            variable `TENSORKEEP_TRUST` names, if there is one; False takes none.
        key: The key of an encrypted checkpoint, the path of a file with it, or several of these; what is not
            encrypted is then refused. None uses keys from the environment; without any, what is encrypted is listed,
            and reading it raises EncryptedError.

    Returns:
        An `Opened`, which closes the files as a context manager: a `Checkpoint` for an index and its shards, a
        `TensorFile` for a single file, a `PickleSet` or `PickleFile` for pickles, a `DistributedCheckpoint` for
        torch.distributed.checkpoint, and so on. For type checkers, it is generic in the tensors of `framework`.

    Raises:
        SourceMissingError: If there is nothing at the path, or a shard is missing.
        IntegrityError: If the checkpoint is incomplete or damaged; the message names the shards and tensors.
        IndexFileError: If the index cannot be parsed.
        HeaderError: If a single file is not a complete safetensors file.
        PickleError: If a pickle is malformed, or contradicts itself or its file.
        ArchiveError: If a pickle's archive is malformed, or two readers could read it differently.
        UnsafeError: If a pickle names something that could only do harm, or that `strict` refuses. Nothing was run.
        LimitError: If a header, the index or a pickle is too long, or a pickle exceeds another bound.
        EncryptedError: If it is encrypted with another key.
        DtypeError: If one of `dtypes` is unknown, or the tensor's elements have another size.
        TensorNotFoundError: If no tensor without a dtype has a name in `dtypes`.
        UnsupportedError: If the target cannot be opened, an argument is invalid, a directory holds several
            checkpoints, the digests are of a later version, or `verify` is set and there are no digests.
        MissingDependencyError: If the library for such a URL, compression, key or `engine` is not installed.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        TransportError: If a file cannot be read.

    Examples:
        >>> with tensorkeep.open("model.safetensors") as file:
        ...     rows = file["embedding.weight"][10:20]
        >>> rows.shape
        (10, 64)
    """
    library_for(framework)
    if backend not in BACKENDS:
        raise UnsupportedError(f"backend {backend!r} is invalid", expected="one of " + ", ".join(BACKENDS))
    if dangerous not in {"refuse", "record"}:
        raise UnsupportedError(f"dangerous {dangerous!r} is invalid", expected='"refuse" or "record"')
    options = OpenOptions(
        framework=framework,
        device=device,
        backend=backend,
        check=check,
        max_header_nbytes=max_header_nbytes,
        verify=verify,
        variant=variant,
        strict=strict,
        dangerous=dangerous,
        limits=limits,
        engine=engine,
        dtypes=dtypes or {},
        keys=Keys.given(key),
        lazily=True,
    )
    return open_with(target, options, trust)


def open_with(target: Openable, options: OpenOptions, trust: Trust | None = None) -> Opened:
    """Open whatever is at a path as the options say."""
    if isinstance(target, str | os.PathLike):
        with listing_cache(os.fspath(target)) as path:
            return _open(path, options, trust)
    return _open(target, options, trust)


def _open(target: Openable, options: OpenOptions, trust: Trust | None) -> Opened:
    place = Place(target, variant=options.variant, backend=options.backend)
    return open_found(place, find_kind(place), options, trust)


def open_found(place: Place, found: Found, options: OpenOptions, trust: Trust | None = None) -> Opened:
    """Open what was found at a place, under a policy if there is one."""
    policy = policy_for(trust, place.path)
    if policy is None:
        return _opened(place, found, options)
    demand: Demand = imported(_DEMAND)(policy, place, found, options)
    opened = demand.check(_opened(place, found, demand.options))
    for part in (opened, *opened.shards.values()):
        part.proof = demand.options.proof or demand.proof
    return opened


def _opened(place: Place, found: Found, options: OpenOptions) -> Opened:
    try:
        opened = found.open(options)
    except SourceMissingError as error:
        raise error if error.hint else error.with_fields(hint=hint_for_directory(place)) from None
    if options.verify and not found.kind.verifies_reads:
        try:
            refuse(run_checks(opened.checks(), opened.path).findings, opened.path)
        except BaseException:
            opened.close()
            raise
    return opened


def needs_conversion(path: str, variant: str | None = None) -> bool:
    """Say whether only `convert` makes safetensors of what is at a path: it holds more than tensors."""
    found = find_kind(Place(path, variant=variant, trusts_names=False))
    if found.kind.is_converted:
        return True
    with found.open(OpenOptions(variant=variant)) as opened:
        return bool(opened.left_out())


@overload
def load(target: Openable, *, framework: None = None, **options: Unpack[LoadKeywords]) -> Any: ...
@overload
def load(target: Openable, *, framework: NumpyName, **options: Unpack[LoadKeywords]) -> dict[str, NDArray[Any]]: ...
@overload
def load(target: Openable, *, framework: TorchName, **options: Unpack[LoadKeywords]) -> dict[str, torch.Tensor]: ...
@overload
def load(target: Openable, *, framework: JaxName, **options: Unpack[LoadKeywords]) -> dict[str, jax.Array]: ...
@overload
def load(target: Openable, *, framework: TensorflowName, **options: Unpack[LoadKeywords]) -> dict[str, tf.Tensor]: ...
@overload
def load(target: Openable, *, framework: MlxName, **options: Unpack[LoadKeywords]) -> dict[str, mx.array]: ...
@overload
def load(target: Openable, *, framework: PaddleName, **options: Unpack[LoadKeywords]) -> dict[str, paddle.Tensor]: ...
@overload
def load(target: Openable, *, framework: CupyName, **options: Unpack[LoadKeywords]) -> dict[str, cupy.ndarray]: ...
@overload
def load(target: Openable, *, framework: Framework | None, **options: Unpack[LoadKeywords]) -> Any: ...
def load(
    target: Openable,
    *,
    only: Selector | Iterable[Selector] | None = None,
    classes: Classes = (),
    ties: Ties = "share",
    framework: Framework | None = None,
    device: Any = "cpu",
    device_map: Mapping[str, Any] | None = None,
    backend: Backend = "auto",
    variant: str | None = None,
    check: bool = True,
    verify: bool = False,
    strict: bool = False,
    dangerous: Dangerous = "refuse",
    limits: PickleLimits = DEFAULT_LIMITS,
    engine: str | None = None,
    dtypes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    dequantize: Any = None,
    trust: Trust | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> Any:
    """Load the state that was saved, or a part of it.

    Objects that are not read as tensors are left out with an `UnreadWarning`, unless the saved value has a place for
    them.

    Args:
        target: A directory, an index, a file, its bytes, or a seekable binary file object.
        only: Which parts to load: shell patterns for dotted names (`*` crosses dots), such as `"model.*"`, or
            predicates on a name; None loads everything. In dicts, other entries are missing; in lists and tuples,
            they are None.
        classes: Dataclasses, enums and named tuples that may be rebuilt, as classes or as a mapping of name to
            class. Others become `NamedData`: nothing that a file names is imported or called.
        ties: What to do with tensors that shared memory: `"share"` it again, `"copy"` it for each, or raise an
            `"error"`.
        framework: The array library for all tensors, such as `"jax"`; see `open`. None uses the library that each
            tensor was saved from, or NumPy if the file does not record it.
        device: The device for tensors, in the library's own terms; see `open`. If all tensors are NumPy arrays, any
            but the CPU is an error.
        device_map: Several devices: the device of each tensor by its name or by a module that it is in, such as
            `{"model.layers.0": 0, "": "cpu"}`; see `LazyTensors.on_devices`. The result is then a dict of name to
            tensor, whatever was saved, of torch unless `framework` is given.
        backend: How to read local files: `"mmap"`, `"pread"` or `"auto"`; see `open`.
        variant: Which checkpoint to load from a directory: `"fp16"` finds `model.fp16.safetensors` or its shards.
        check: Whether to compare headers with their saved digests.
        verify: Whether to compare tensors with their digests while they are read; see `open`.
        strict: Whether to refuse a pickle that holds anything but tensors and plain data.
        dangerous: What to do with names in a pickle that could only do harm: `"refuse"` or `"record"`; see `open`.
        limits: Bounds on what the pickle of each file may cost.
        engine: The library that reads the files instead of tensorkeep; see `open`.
        progress: Called with the bytes loaded so far and the total, after each batch of about 64 MiB or larger
            tensor. It begins again if a save replaces a remote checkpoint during the load.
        dequantize: Dtype in which to compute the numbers of quantized tensors, such as `"bf16"`; other tensors stay
            as they are. None refuses to load quantized tensors. A nested state with such tensors is refused.
        dtypes: Dtypes that the file does not say, by name or shell pattern; see `open`.
        trust: Whose signatures count: a `Policy`, the path of one or of a public key; see `open`.
        key: The key of an encrypted checkpoint; see `open`.

    Returns:
        The saved state. If the file records only names, a dict of name to tensor in byte order; type checkers take
        it for that if `framework` is given, and `load_tree()` of an open file for anything. For pickles, nested plain
        data and tensors that share memory as they did, with an `Unknown` for each object that is not known to be
        data.

    Raises:
        SourceMissingError: If there is nothing at the path, or a shard is missing.
        IntegrityError: If the checkpoint is incomplete or damaged; the message names the shards and tensors.
        IndexFileError: If the index cannot be parsed.
        HeaderError: If a single file is not a complete safetensors file.
        PickleError: If a pickle is malformed, or contradicts itself or its file.
        ArchiveError: If a pickle's archive is malformed, or two readers could read it differently.
        FormatError: If the description of the state is malformed, or the parts of a tensor do not fit together.
        UnsafeError: If a pickle names something that could only do harm, or that `strict` refuses. Nothing was run.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        TensorNotFoundError: If `only` matches nothing, or no tensor without a dtype has a name in `dtypes`.
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If tensorkeep or the framework does not know a dtype, or one of `dtypes` has another size.
        LimitError: If a tensor has more dimensions than the framework allows, or a header, pickle or tree exceeds a
            bound.
        DeviceError: If a device is not on this machine, no tensor can go there, or `device_map` has none for a tensor
            (also a RuntimeError).
        MissingDependencyError: If the library that tensors were saved from, or that `open` needs, is not installed.
        SourceChangedError: If a remote checkpoint was replaced again and again while it was read.
        TypeError: If `only` is neither text, nor callable, nor an iterable of these.
        UnsupportedError: If the target cannot be opened, an argument is invalid or does not apply to its kind, or a
            directory holds several checkpoints.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        TransportError: If a file cannot be read.

    Examples:
        >>> layers = tensorkeep.load("model.safetensors", only="layers.*")
        >>> sorted(layers)[0], len(layers)
        ('layers.0.weight', 4)
    """
    check_ties(ties)
    if device_map is not None and (ties, str(device)) != ("share", "cpu"):
        raise UnsupportedError('a device map does not go with device= or ties= other than "share"')
    options = LoadOptions(
        only, classes, ties, framework, device, device_map, dequantize=dequantize, progress=progress
    )

    def read() -> Any:
        with open_checkpoint(
            target,
            framework=framework or DEFAULT_FRAMEWORK,
            device=device,
            backend=backend,
            variant=variant,
            check=check,
            verify=verify,
            strict=strict,
            dangerous=dangerous,
            limits=limits,
            engine=engine,
            dtypes=dtypes,
            trust=trust,
            key=key,
        ) as opened:
            loaded = opened.load_state(options) if device_map is None else opened.load_on_devices(options)
            warn_of_unread(opened, only)
            return loaded

    return read_consistently(target, read)


def read_consistently(target: Openable, read: Callable[[], Any]) -> Any:
    """Call a function that opens and reads a checkpoint; call it again if a save replaced a remote one meanwhile."""
    is_url = isinstance(target, str | os.PathLike) and is_remote(os.fspath(target))
    for _ in range(_ATTEMPTS - 1 if is_url else 0):
        with suppress(SourceChangedError):
            return read()
    return read()
