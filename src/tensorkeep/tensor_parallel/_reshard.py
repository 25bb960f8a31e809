"""`reshard_for_ranks`: a checkpoint as directories that each rank of a server or a job reads alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from tensorkeep.checkpoint import (
    Progress,
    ReservedFiles,
    SaveOptions,
    destination_exists,
    identities_of,
    refuse_replaced,
    whole_checkpoint,
)
from tensorkeep.dtypes import BY_NAME
from tensorkeep.encryption import KeyLike, Keys
from tensorkeep.errors import DtypeError, LimitError, RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.fetching import MAX_COMPANION_NBYTES, USUAL_COMPANIONS, companions_among
from tensorkeep.kinds import Opened
from tensorkeep.kinds.given import path_of, source_of
from tensorkeep.kinds.origins import SourceToOpen, is_provable_by_others
from tensorkeep.layout import RANK_SET, parse_size, rank_directory
from tensorkeep.parallel import ProgressMeter, batches_of, parallel_map
from tensorkeep.quantized import Layouts, layouts
from tensorkeep.signing import is_provenance
from tensorkeep.tensor_parallel._by_executor import filling_by
from tensorkeep.tensor_parallel._divide import Division, Header, divide
from tensorkeep.tensor_parallel._fill import Filled, TensorToFill, fill
from tensorkeep.tensor_parallel._model_plan import model_plan
from tensorkeep.tensor_parallel._plan import MODEL, PatternPlan, parse_plan
from tensorkeep.tensor_parallel._write import Shares, write_ranks
from tensorkeep.tensors import LazyTensors
from tensorkeep.transport import ByteRange, Reserved, is_directory, is_remote, join, list_names, open_source, split

if TYPE_CHECKING:
    from concurrent.futures import Executor

Plan = Mapping[str, str] | str | os.PathLike[str]

_MAX_RANKS: Final = 4096
_MAX_THREADS: Final = 4
_MAX_PLAN_NBYTES: Final = 2**22


class RankDivision(msgspec.Struct, frozen=True):
    """What `reshard_for_ranks` wrote.

    Attributes:
        directories: Name of each rank's directory, in order.
        nbytes: Bytes of tensors that each rank has.
        divided: Names of the tensors that are divided.
        whole: Names of the tensors that every rank has whole.
    """

    directories: tuple[str, ...]
    nbytes: tuple[int, ...]
    divided: tuple[str, ...]
    whole: tuple[str, ...]


def reshard_for_ranks(
    source: str | os.PathLike[str] | LazyTensors,
    directory: str | os.PathLike[str],
    n_ranks: int,
    *,
    plan: Plan | None = None,
    max_shard_size: int | str = "5GB",
    variant: str | None = None,
    overwrite: bool = False,
    durable: bool = True,
    progress: Progress | None = None,
    executor: Executor | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> RankDivision:
    """Divide a checkpoint for tensor parallelism: one directory for each rank, which reads only its own bytes.

    Each directory, such as `rank-00000-of-00008/`, is a checkpoint in the Hugging Face layout, with digests and the
    small files of the model. Either all appear or none. The source is read once, and its bytes are checked against
    their digests on the way. Memory does not depend on the size of tensors.

    `directory` itself opens as the whole tensors again: `tensorkeep.open`, `verify`, `diff` with the source, and
    `reshard` back into one checkpoint, bit for bit.

    Without a plan, the model's own is used: in a separate process, transformers builds the model that the
    `config.json` beside the checkpoint describes, on the meta device and without running anybody else's code. If
    there are fewer key and value heads than ranks, several ranks get the same head. The parts of quantized tensors
    are divided together: GPTQ, AWQ, compressed-tensors, NVFP4 and F8 with scales. Others are refused by name.

    Args:
        source: A directory, an index or a single file, of any library, or a URL; or an open checkpoint or a view,
            whose tensors are computed while they are written.
        directory: A directory on disk, created if its parent exists.
        n_ranks: How many ranks share each tensor.
        plan: Dict from shell patterns, for names of tensors or modules, to styles: `"colwise"`, `"rowwise"`,
            `"packed_colwise"` (two matrices in one), `"embedding_rowwise"`, `"experts"`, `"replicate"` and the others
            of transformers, or `"model"` for what the model's own plan says. With `:heads=32`, attention heads stay
            whole, and with `:kv_heads=8` they are repeated if there are fewer heads than ranks;
            `packed_colwise:heads=32,8,8` is for queries, keys and values in one tensor. The first pattern that
            matches counts; tensors that match none go whole to every rank. Or the path of a TOML file with a table
            `plan`.
        max_shard_size: Bytes of tensors in one file of a rank: a number, or text such as `"5GB"`.
        variant: Which checkpoint of a source directory, such as `"fp16"`.
        overwrite: Whether to replace directories of ranks at the destination. Anything else there is refused.
        durable: Whether to wait until everything is on the disk (fsync).
        progress: Called with the bytes read so far and the total, by one thread at a time. An exception from it ends
            the work, and nothing changes.
        executor: Reads and writes instead of this process's threads: any `concurrent.futures.Executor` whose
            tasks can be pickled, such as a `ProcessPoolExecutor` or dask's `client.get_executor()`. All workers must
            see the source and the destination. This process commits.
        key: The key of an encrypted source; see `open`. The directories are plain.

    Returns:
        What each rank has.

    Raises:
        RefusedError: If tensors cannot be divided equally, a pattern matches nothing, or the model's plan divides
            tensors that the checkpoint lacks. The message names them.
        DestinationExistsError: If there is something at the destination, and `overwrite` is false.
        SourceMissingError: If there is no checkpoint, no `config.json` for the model's plan, or no plan file.
        EncryptedError: If the source is encrypted, and the key is missing or another one.
        IntegrityError: If the checkpoint is not whole, or bytes are not those that were saved.
        FormatError: If the index, a header or the plan is malformed.
        DtypeError: If safetensors has no such dtype.
        LimitError: If the config, the plan or the index of a rank is too large, building the model takes too long, or
            tensors that share bytes would take many times the size of their files.
        UnsupportedError: If there is no such style, no plan for the model, the destination is a URL, or what is open
            already is given with `variant`, `key` or `executor`.
        MissingDependencyError: If the model's plan is needed, and transformers or torch is not installed.
        BusyError: If another process is writing there.
        SourceChangedError: If the source was saved again meanwhile.
        TransportError: If the source cannot be read, or the destination cannot be written.
        TypeError: If a plan is not a dict of text, or its path is not path-like.

    Examples:
        >>> done = tensorkeep.reshard_for_ranks("my-model", "serving", 2, plan={"*.dense": "colwise"})
        >>> done.directories
        ('rank-00000-of-00002', 'rank-00001-of-00002')
        >>> tensorkeep.diff("my-model", "serving").is_equal
        True
    """
    given, target = source_of(source, "reshard_for_ranks"), os.fspath(directory)
    _check_arguments(target, n_ranks)
    if isinstance(given, Opened) and executor is not None:
        raise UnsupportedError(
            "workers cannot read what is open in this process", path=given.path, hint="Give its path, or no executor"
        )
    path = _place_of(given)
    styles = _styles_of(plan)
    with ExitStack() as files:
        _refuse_existing(target, overwrite=overwrite)
        opened = whole_checkpoint(given, variant, files, Keys.given(key))
        opened.refuse_expanded(opened)
        identities = identities_of([opened])
        shares = _shares(opened, path, styles, n_ranks)
        options = SaveOptions(
            max_shard_nbytes=parse_size(max_shard_size),
            metadata=opened.metadata if opened.has_metadata else {"format": "pt"},
            durable=durable,
            index_metadata={},
            before_commit=lambda _: refuse_replaced(identities),
        )
        fill_all = _by_threads(opened, progress)
        if executor is not None and all(is_provable_by_others(opened, lazy) for lazy in opened.values()):
            fill_all = filling_by(executor, opened, SourceToOpen.of(opened, path_of(given), variant), progress)
        write_ranks(os.path.abspath(target), shares, options, {} if path is None else _companions(path), fill_all)
    return _described(shares)


def _place_of(given: str | Opened) -> str | None:
    """Return where the files of the model are; None for a view that is at no path, such as one of several files."""
    path = path_of(given)
    return None if isinstance(given, Opened) and not is_remote(path) and not os.path.exists(path) else path


def _check_arguments(target: str, n_ranks: int) -> None:
    if not isinstance(n_ranks, int) or isinstance(n_ranks, bool) or not 1 <= n_ranks <= _MAX_RANKS:
        raise UnsupportedError(
            "the number of ranks is out of range", expected=f"1 to {_MAX_RANKS:,}", found=repr(n_ranks)
        )
    if is_remote(target):
        raise UnsupportedError(
            "directories of ranks can only be written to disk",
            path=target,
            hint="Write them to a local directory, and copy that to the bucket",
        )


def _styles_of(plan: Plan | None) -> Mapping[str, str]:
    if plan is None:
        return {"*": MODEL}
    if isinstance(plan, Mapping):
        if not all(isinstance(text, str) for line in plan.items() for text in line):
            raise TypeError("a plan maps patterns to styles, such as {'*.q_proj': 'colwise'}")
        return plan
    path = os.fspath(plan)
    source = open_source(path, backend="pread")
    if source.nbytes > _MAX_PLAN_NBYTES:
        raise LimitError("the plan is too large", path=path, expected=f"at most {_MAX_PLAN_NBYTES:,} bytes")
    return parse_plan(bytes(source.read(ByteRange(0, source.nbytes))), path)


def _shares(opened: Opened, path: str | None, styles: Mapping[str, str], n_ranks: int) -> Shares:
    headers = {name: Header(lazy.dtype, lazy.shape) for name, lazy in opened.items()}
    for name, header in headers.items():
        if header.dtype not in BY_NAME:
            raise DtypeError(
                f"tensor `{name}` has a dtype that safetensors does not have", tensor=name, found=header.dtype
            )
    quantized = layouts(opened)
    shapes = {name: header.shape for name, header in headers.items()}
    shapes |= {name: tensor.shape for name, tensor in quantized.tensors.items()}
    shapes |= dict.fromkeys(quantized.broken, ())
    patterns = PatternPlan(styles, lambda: model_plan(path, shapes))
    divisions = divide(headers, patterns.rule_of, n_ranks, quantized)
    patterns.refuse_unused(headers)
    _refuse_act_order(opened, quantized, divisions)
    return Shares(headers, divisions, n_ranks)


def _refuse_act_order(opened: Opened, quantized: Layouts, divisions: Mapping[str, Division]) -> None:
    """Refuse to divide columns that use scales in any order: a rank would need the scales of others."""
    for name, tensor in quantized.tensors.items():
        order = tensor.parts.get("order")
        if order is None or order not in divisions:
            continue
        groups = np.asarray(opened[order].with_framework("numpy").load())
        if not np.array_equal(groups, np.arange(len(groups)) // tensor.block[-1]):
            raise RefusedError(
                f"the columns of `{name}` use their scales in arbitrary order (act order), so they cannot be divided",
                tensor=order,
                hint="Use a checkpoint without act order, or give this module the style `replicate`",
            )


def _by_threads(opened: Opened, progress: Progress | None) -> Callable[..., Sequence[Filled]]:
    def fill_all(wanted: Sequence[TensorToFill], reserved: tuple[Reserved, ...]) -> Sequence[Filled]:
        sizes = {each.name: opened[each.name].nbytes for each in wanted}
        meter = ProgressMeter(progress, sum(sizes.values()))
        with ReservedFiles(reserved, lambda: None) as files:

            def run(batch: Sequence[TensorToFill]) -> list[Filled]:
                return [fill(opened[each.name], each, files, meter.add) for each in batch]

            batches = batches_of(wanted, lambda each: sizes[each.name])
            n_threads = min(_MAX_THREADS, os.cpu_count() or 1, len(batches))
            return [each for done in parallel_map(run, batches, n_threads=n_threads, meter=meter) for each in done]

    return fill_all


def _refuse_existing(target: str, *, overwrite: bool) -> None:
    """Refuse what is at the destination; what is replaced must be nothing but directories of ranks."""
    try:
        names = sorted(os.listdir(target))
    except (FileNotFoundError, NotADirectoryError):
        return
    if names and not overwrite:
        hint = "Choose another; overwrite=True (--force) replaces directories of ranks"
        raise destination_exists(target, names).with_fields(hint=hint)
    n_ranks = sum(name.startswith("rank-") for name in names)
    known = {RANK_SET, *(rank_directory(rank, n_ranks) for rank in range(n_ranks))}
    if others := [name for name in names if name not in known and not name.endswith(".sig")]:
        raise RefusedError(
            "the destination would be replaced as a whole, but contains more than directories of ranks",
            path=target,
            found=", ".join(others[:5]),
            hint="Move the other files away, or choose another destination",
        )


def _companions(path: str) -> dict[str, bytes]:
    """Read the small files of the model beside a checkpoint, such as its config and tokenizer."""
    directory = path if is_directory(path) else split(path)[0] or os.curdir
    listed = USUAL_COMPANIONS if is_remote(directory) else list_names(directory) or ()
    found: dict[str, bytes] = {}
    for name in companions_among(listed):
        if is_provenance(name):  # of other files
            continue
        if is_remote(directory) or os.path.isfile(join(directory, name)):
            with suppress(SourceMissingError):
                source = open_source(join(directory, name), backend="pread")
                if source.nbytes <= MAX_COMPANION_NBYTES:
                    found[name] = bytes(source.read(ByteRange(0, source.nbytes)))
    return found


def _described(shares: Shares) -> RankDivision:
    def nbytes(rank: int) -> int:
        total = 0
        for name, header in shares.headers.items():
            n_elements = 1
            for extent in shares.shape_of(name, rank):
                n_elements *= extent
            total += BY_NAME[header.dtype].nbytes(n_elements)
        return total

    return RankDivision(
        tuple(rank_directory(rank, shares.n_ranks) for rank in range(shares.n_ranks)),
        tuple(map(nbytes, range(shares.n_ranks))),
        tuple(shares.divisions),
        tuple(name for name in shares.headers if name not in shares.divisions),
    )
