"""Opens whatever is at a path, and loads it: the first kind that recognises it decides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tensorkeep.arrays import DEFAULT_FRAMEWORK, library_for
from tensorkeep.checkpoint.verifying import run_checks
from tensorkeep.errors import SourceChangedError, UnsupportedError
from tensorkeep.formats.pickles import DEFAULT_LIMITS, Dangerous, PickleLimits
from tensorkeep.kinds import LoadOptions, Opened, OpenOptions, Place, refuse
from tensorkeep.kinds.registry import find_kind
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.state import Classes
from tensorkeep.tensors import Selector, Ties
from tensorkeep.transport import BACKENDS, Backend, Openable, is_remote, listing_cache

_ATTEMPTS = 4
"""How often a checkpoint of another machine is loaded because another took its place in the meantime."""


def open_checkpoint(
    target: Openable,
    *,
    framework: str = "numpy",
    device: Any = "cpu",
    backend: Backend = "auto",
    variant: str | None = None,
    check: bool = True,
    verify: bool = False,
    strict: bool = False,
    dangerous: Dangerous = "refuse",
    limits: PickleLimits = DEFAULT_LIMITS,
    max_header_nbytes: int = MAX_HEADER_NBYTES,
) -> Opened:
    """Open a checkpoint: a read-only mapping of name to `LazyTensor`.

    Only headers and the index are read, and all of them are checked: against each other, and against the digests
    that were saved with them. Checkpoints of other libraries, which have no digests, open just as well.

    What `torch.save` wrote opens too, whoever sent it: its pickle is read, and nothing in it is run. So does
    a directory of torch.distributed.checkpoint, whose tensors are assembled from what the ranks wrote.

    Args:
        target: A directory, an index, a file, its bytes, or a seekable binary file object.
        framework: The array library that tensors come out in: `"numpy"` or `"torch"`.
        device: Where tensors go; anything that torch takes.
        backend: `"mmap"`, `"pread"`, or `"auto"`: mapped unless the file is on a network or FUSE file system.
            Truncating a mapped file ends the process that touches it (SIGBUS); `"pread"` gives an error.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        check: Whether to hold headers against the digests that were saved. False reads a checkpoint that another
            program changed on purpose, without its digests.
        verify: Whether each tensor is held against its digest when it is read whole; what is read in parts is not.
            Files of pickles are held against the sums of their archives at once, where they have any.
        strict: Whether a pickle may hold nothing but tensors and plain data. Otherwise what is not known to be data
            becomes an inert `Unknown`.
        dangerous: What to do with names in a pickle that could only do harm, such as `os.system`: `"refuse"` the
            file, or `"record"` them as inert as all others.
        limits: What the pickle of a file may cost.
        max_header_nbytes: Longest header of a single file that is accepted, in bytes.

    Returns:
        A `Checkpoint` of shards or the `TensorFile` of a single file; for pickles a `PickleSet` or a `PickleFile`,
        and a `DistributedCheckpoint` of what torch.distributed.checkpoint wrote. All are also context managers.

    Raises:
        SourceMissingError: If there is nothing, or a shard is missing.
        IntegrityError: If the checkpoint is not whole: the message names shards and tensors.
        IndexFileError: If the index is none.
        HeaderError: If a single file is not a whole safetensors file.
        PickleError: If a pickle is none, or contradicts itself or its file.
        ArchiveError: If a pickle's archive is malformed, or two readers could read it differently.
        UnsafeError: If a pickle names what could only do harm, or what `strict` refuses. Nothing was run.
        LimitError: If a header, the index or a pickle is too long, or a pickle is over another bound.
        UnsupportedError: If the target or an argument is none of the above, a directory has several checkpoints, or
            the digests are of a later version, or there are none to verify by.
        TransportError: If it cannot be read.
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
    )
    if isinstance(target, str | os.PathLike):
        with listing_cache(os.fspath(target)) as path:
            return _open(path, options)
    return _open(target, options)


def _open(target: Openable, options: OpenOptions) -> Opened:
    found = find_kind(Place(target, variant=options.variant, backend=options.backend))
    opened = found.open(options)
    if options.verify and not found.kind.verifies_reads:
        try:
            refuse(run_checks(opened.checks(), opened.path).findings, opened.path)
        except BaseException:
            opened.close()
            raise
    return opened


def load(
    target: Openable,
    *,
    only: Selector | Iterable[Selector] | None = None,
    classes: Classes = (),
    ties: Ties = "share",
    framework: str | None = None,
    device: Any = "cpu",
    backend: Backend = "auto",
    variant: str | None = None,
    check: bool = True,
    verify: bool = False,
    strict: bool = False,
    dangerous: Dangerous = "refuse",
    limits: PickleLimits = DEFAULT_LIMITS,
) -> Any:
    """Read all of a checkpoint, or a part of it: the very state that was saved.

    Args:
        target: A directory, an index, a file, its bytes, or a seekable binary file object.
        only: Which parts: shell patterns for dotted names (`*` crosses dots), such as `"model.*"`, or functions of a
            name. What is left out of dicts is missing there; in lists and tuples None stands in its place.
        classes: Dataclasses, enums and named tuples that may be made again, or name to class. Others become
            `NamedData`: nothing that a file names is imported or called.
        ties: What to do with tensors that shared memory: let them `"share"` it again, `"copy"` it for each, or raise
            an `"error"`.
        framework: The array library that all tensors come out in: `"numpy"` or `"torch"`. None for that which they
            were saved from, and NumPy where the file does not say.
        device: Where torch's tensors go; anything that torch takes.
        backend: How local files are read; see `open_checkpoint`.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        check: Whether to hold headers against the digests that were saved.
        verify: Whether every byte is held against its digest while it is read; see `open_checkpoint`.
        strict: Whether a pickle may hold nothing but tensors and plain data.
        dangerous: What to do with names in a pickle that could only do harm; see `open_checkpoint`.
        limits: What the pickle of a file may cost.

    Returns:
        What was saved. Where a file only knows names, name to tensor, in the order of the bytes. Of a file of pickles
        nested plain data and tensors, which share memory where they shared it, with an `Unknown` for all that is not
        known to be data.

    Raises:
        SourceMissingError: If there is nothing, or a shard is missing.
        IntegrityError: If the checkpoint is not whole: the message names shards and tensors.
        IndexFileError: If the index is none.
        HeaderError: If a single file is not a whole safetensors file.
        PickleError: If a pickle is none, or contradicts itself or its file.
        ArchiveError: If a pickle's archive is malformed, or two readers could read it differently.
        FormatError: If what is said of the state is malformed, or the parts of a tensor do not fit together.
        UnsafeError: If a pickle names what could only do harm, or what `strict` refuses. Nothing was run.
        TensorNotFoundError: If nothing is chosen.
        SharedMemoryError: If tensors share memory and `ties` is `"error"`.
        DtypeError: If a dtype is unknown here or to the framework.
        LimitError: If a tensor has more dimensions than the framework allows, or a pickle or tree is over a bound.
        MissingDependencyError: If the library that tensors were saved from is not installed.
        SourceChangedError: If it was replaced by another again and again while it was read.
        UnsupportedError: If an argument is none of the above, or does not apply to pickles.
        TransportError: If it cannot be read.
    """
    options = LoadOptions(only, classes, ties, framework, device)

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
        ) as opened:
            return opened.load_state(options)

    if isinstance(target, str | os.PathLike) and is_remote(os.fspath(target)):
        return _read_consistently(read)
    return read()


def _read_consistently(read: Callable[[], Any]) -> Any:
    """Read what a save may replace meanwhile, and then the new one."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(SourceChangedError):
            return read()
    return read()
