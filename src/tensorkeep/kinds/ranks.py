"""A checkpoint for tensor parallelism: a directory with one checkpoint for each rank, opened as the whole tensors.

Each rank's directory is a checkpoint by itself. Here they are one: every tensor has its shape before it was divided,
assembled from the parts of all ranks, and the digest that it had. `verify` checks each rank's files, and that they
belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Final

import msgspec

from tensorkeep.arrays import ArrayT
from tensorkeep.arrays.elements import known_dtype
from tensorkeep.buffers import Buffer
from tensorkeep.digests import BLAKE3, digest_of
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    LimitError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
)
from tensorkeep.kinds.base import Check, Checks, Finding, Kind, Opened, OpenOptions, Place, names_to_check
from tensorkeep.kinds.safetensors import Checkpoint, TensorFile, check_files, open_safetensors
from tensorkeep.layout import RANK_SET, RankPart, RankSet, RankShare, index_name, parse_rank_set, parse_share
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.tensors import (
    Layout,
    LazyTensor,
    PlacedPiece,
    Region,
    StridedReader,
    TensorReader,
    assemble,
    c_strides,
    run_of,
)
from tensorkeep.transport import ByteRange, ByteSource, is_remote, join, open_source, recover_directories, split

_INDEX: Final = index_name("model", None)


class RankedCheckpoint(Opened[ArrayT]):
    """The checkpoints of all ranks as one mapping of name to whole `LazyTensor`.

    Args:
        directory: The directory of the record.
        ranks: Name of each rank's directory to its open checkpoint, in order.
        options: How to read tensors.
    """

    def __init__(self, directory: str, ranks: Mapping[str, Checkpoint], options: OpenOptions) -> None:
        self._directory = directory
        self._ranks = dict(ranks)
        self._options = options
        self._shares = [parse_share(opened.index.metadata, opened.path) for opened in ranks.values()]
        self._refuse_contradictions()

    def _refuse_contradictions(self) -> None:
        first, own = next(iter(self._ranks.items()))
        for (name, opened), (number, share) in zip(self._ranks.items(), enumerate(self._shares), strict=True):
            if (share.rank, share.size) != (number, len(self._ranks)):
                found = f"rank {share.rank} of {share.size}"
                raise IntegrityError(f"{name} is the checkpoint of another rank", path=self.path, found=found)
            if other := opened.keys() ^ own.keys():
                raise IntegrityError(
                    f"{name} and {first} do not have the same tensors",
                    path=self.path,
                    tensor=min(other),
                    found=f"`{min(other)}` in one of them",
                )
            for tensor in share.parts.keys() ^ self._shares[0].parts.keys():
                raise IntegrityError(
                    "ranks do not agree on which tensors are divided", path=self.path, tensor=tensor, found=name
                )
            for tensor, part in share.parts.items():
                self._check_part(name, opened, tensor, part, self._shares[0].parts[tensor])

    def _check_part(self, name: str, opened: Checkpoint, tensor: str, part: RankPart, first: RankPart) -> None:
        stored, other = opened.get(tensor), self._first.get(tensor)
        if stored is None or other is None or (stored.dtype, stored.shape) != (other.dtype, part.own_shape):
            raise IntegrityError(
                f"the part of tensor `{tensor}` in {name} is not what its index says",
                path=self.path,
                tensor=tensor,
                expected=str(list(part.own_shape)),
                found="no tensor" if stored is None else f"{stored.dtype} {list(stored.shape)}",
            )
        if (part.shape, part.dim, part.digest) != (first.shape, first.dim, first.digest):
            raise IntegrityError(
                f"the parts of tensor `{tensor}` are of different tensors", path=self.path, tensor=tensor, found=name
            )

    @property
    def path(self) -> str:
        """The directory of the record."""
        return self._directory

    @property
    def ranks(self) -> Mapping[str, Checkpoint]:
        """Name of each rank's directory to its checkpoint, in order."""
        return self._ranks

    @property
    def shares(self) -> tuple[RankShare, ...]:
        """What each rank has, in order."""
        return tuple(self._shares)

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return f"safetensors for {len(self._ranks)} ranks"

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Path of each file in the directory to its bytes."""
        return {
            f"{rank}/{file}": source
            for rank, opened in self._ranks.items()
            for file, source in opened.sources.items()
        }

    @property
    def has_metadata(self) -> bool:
        """Whether the first rank has metadata, even if empty."""
        return self._first.has_metadata

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, as a new dict: the same for all ranks."""
        return self._first.metadata

    def shard_of(self, name: str) -> str:
        """Return the file that holds a tensor, or the first rank's part of it."""
        rank, opened = next(iter(self._ranks.items()))
        return f"{rank}/{opened.shard_of(name)}"

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the digests of some tensors or all, of every rank."""
        chosen = None if names is None else names_to_check(names, self, self.path)
        found = {rank: opened.checks(chosen) for rank, opened in self._ranks.items()}
        return _of_ranks(found)

    def whole_checks(self) -> Iterator[Check]:
        """Yield a check for each divided tensor as a whole; IntegrityError if its parts do not fit together."""
        for name, part in self._shares[0].parts.items():
            whole = _WholeTensor(self[name], self.path)
            digest = bytes.fromhex(part.digest)
            yield Check(RANK_SET, name, whole, ByteRange(0, whole.nbytes), BLAKE3, digest, n_tensors=0)

    def unequal_copies(self) -> Iterator[Finding]:
        """Find tensors that all ranks should have alike, and do not."""
        first, own = next(iter(self._ranks.items()))
        same = [name for name in own if name not in self._shares[0].parts]
        for rank, opened in self._ranks.items():
            for name in same:
                a, b = own[name], opened[name]
                if (a.dtype, a.shape, a.digest) != (b.dtype, b.shape, b.digest):
                    message = f"tensor `{name}` is not the one in {first}"
                    yield Finding("data", message, f"{rank}/{opened.shard_of(name)}", name)

    def _find(self, name: str) -> LazyTensor | None:
        first: LazyTensor | None = self._first.get(name)
        if first is None or name not in self._shares[0].parts:
            return first  # the same for all ranks
        parts = [share.parts[name] for share in self._shares]
        placed = [
            PlacedPiece.of(region, f"{rank}/{opened.shard_of(name)}", _part_of(opened[name], inner))
            for (rank, opened), part in zip(self._ranks.items(), parts, strict=True)
            for region, inner in part.regions()
        ]
        whole = assemble(
            name,
            first.dtype,
            parts[0].shape,
            placed,
            path=self.path,
            framework=self._options.framework,
            device=self._options.device,
        )
        digest = bytes.fromhex(parts[0].digest)
        return LazyTensor(name, whole.entry, whole.reader, digest).marked(first.library, first.marks)

    @property
    def _first(self) -> Checkpoint:
        return next(iter(self._ranks.values()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)

    def __contains__(self, name: object) -> bool:
        return name in self._first

    def close(self) -> None:
        """Close all files. Tensors that were read stay valid; lazy ones can no longer be read."""
        for opened in self._ranks.values():
            opened.close()

    def __repr__(self) -> str:
        return f"RankedCheckpoint({self.path!r}, {len(self._ranks)} ranks, {len(self)} tensors)"


def _part_of(stored: LazyTensor, inner: Region) -> LazyTensor:
    """Return a region of a rank's tensor, for NumPy."""
    lazy = stored.with_framework("numpy")
    reader, span = lazy.reader, lazy.span
    if inner.shape == lazy.shape:
        return lazy
    if not isinstance(reader, TensorReader) or span is None:
        raise UnsupportedError(
            "a part of several ranges must be stored in one piece",
            tensor=lazy.name,
            found="a view, or several pieces",
        )
    dtype = known_dtype(lazy.name, lazy.entry)
    run = run_of(inner, lazy.shape)
    nbytes = dtype.nbytes(inner.n_elements)
    if run is not None:
        start = lazy.entry.data_offsets[0] + dtype.nbytes(run.start)
        return LazyTensor(lazy.name, TensorEntry(lazy.dtype, inner.shape, (start, start + nbytes)), reader)
    strides = c_strides(lazy.shape)
    first = sum(begin * stride for begin, stride in zip(inner.starts, strides, strict=True))
    layout = Layout(span.start + dtype.nbytes(first), strides)
    return LazyTensor(lazy.name, TensorEntry(lazy.dtype, inner.shape, (0, nbytes)), StridedReader(reader, layout))


def read_rank_set(directory: str) -> RankSet:
    """Read the record of all ranks."""
    path = join(directory, RANK_SET)
    return parse_rank_set(_text_of(path), path)


def _text_of(path: str) -> bytes:
    source = open_source(path, backend="pread")
    if source.nbytes > MAX_INDEX_NBYTES:
        raise LimitError("the file is too large", path=path, expected=f"at most {MAX_INDEX_NBYTES:,} bytes")
    return bytes(source.read(ByteRange(0, source.nbytes)))


def _find(place: Place) -> str | None:
    """Return the directory of a record."""
    path = place.path
    if path is None:
        return None
    if not place.is_directory:
        directory, name = split(path)
        return directory if name == RANK_SET else None
    if RANK_SET in place.names:
        if not is_remote(path):
            recover_directories(split(path.rstrip("/"))[0] or ".")
        return path
    return None


def _open(directory: str, options: OpenOptions) -> RankedCheckpoint:
    found = read_rank_set(directory)
    opened: dict[str, Checkpoint | TensorFile] = {}
    try:
        for rank in found.ranks:
            opened[rank] = open_safetensors(join(directory, rank), options)
        return RankedCheckpoint(directory, _with_indexes(directory, opened), options)
    except BaseException:
        for each in opened.values():
            each.close()
        raise


def _with_indexes(directory: str, opened: Mapping[str, Checkpoint | TensorFile]) -> dict[str, Checkpoint]:
    found: dict[str, Checkpoint] = {}
    for rank, each in opened.items():
        if not isinstance(each, Checkpoint):
            raise IntegrityError(f"{rank} has no index", path=directory, expected=_INDEX)
        found[rank] = each
    return found


def _check(directory: str, options: OpenOptions, names: Iterable[str] | None, opened: ExitStack) -> Checks:
    """Return the checks of all ranks, each as if it were alone, and whether they belong together."""
    found = read_rank_set(directory)
    if names is not None:
        return opened.enter_context(_open(directory, options)).checks(names)
    checks = _of_ranks({rank: _checks_of(join(directory, rank), options, opened) for rank in found.ranks})
    findings = list(_foreign_indexes(directory, found))
    if findings or any(finding.is_damage for finding in checks.findings):
        return msgspec.structs.replace(checks, findings=[*findings, *checks.findings])
    together = _checks_together(directory, options, opened)
    return msgspec.structs.replace(
        checks, checks=[*checks.checks, *together.checks], findings=[*together.findings, *checks.findings]
    )


def _checks_of(path: str, options: OpenOptions, opened: ExitStack) -> Checks:
    """Return the checks of one rank; what cannot even be opened is a finding."""
    try:
        return check_files(path, options, None, opened)
    except SourceMissingError:
        return Checks(findings=[Finding("missing", "the checkpoint of the rank is missing", _INDEX)])
    except (FormatError, IntegrityError) as error:
        return Checks(
            findings=[
                Finding("header", error.message, _INDEX, error.tensor, expected=error.expected, found=error.found)
            ]
        )


def _of_ranks(found: Mapping[str, Checks]) -> Checks:
    """Merge the checks of ranks, in which a tensor counts once; a file has its directory's name before its own."""
    replace = msgspec.structs.replace
    first = next(iter(found))
    checks = [
        replace(check, file=f"{rank}/{check.file}", n_tensors=check.n_tensors if rank == first else 0)
        for rank, of_rank in found.items()
        for check in of_rank.checks
    ]
    findings = [
        replace(finding, shard=f"{rank}/{finding.shard}")
        for rank, of_rank in found.items()
        for finding in of_rank.findings
    ]
    n_files = sum(of_rank.n_files for of_rank in found.values())
    return replace(found[first], checks=checks, findings=findings, n_files=n_files)


def _foreign_indexes(directory: str, found: RankSet) -> Iterator[Finding]:
    for rank, digest in found.ranks.items():
        with suppress(TensorkeepError):  # the rank's own checks say what is wrong
            if digest_of(_text_of(join(join(directory, rank), _INDEX))).hex() != digest:
                yield Finding("foreign", "the index is from another save", f"{rank}/{_INDEX}")


def _checks_together(directory: str, options: OpenOptions, opened: ExitStack) -> Checks:
    """Return what can be checked, and is wrong, between ranks whose own files are whole."""
    try:
        ranks = opened.enter_context(_open(directory, options))
        return Checks(list(ranks.whole_checks()), list(ranks.unequal_copies()))
    except (FormatError, IntegrityError) as error:
        finding = Finding(
            "foreign", error.message, RANK_SET, error.tensor, expected=error.expected, found=error.found
        )
        return Checks(findings=[finding])


class _WholeTensor:
    """The bytes of a tensor that ranks share, in the order in which it had them before."""

    gap_nbytes = 0

    def __init__(self, lazy: LazyTensor, name: str) -> None:
        self.name = name
        self.nbytes = lazy.nbytes
        self._lazy = lazy

    def map(self, span: ByteRange) -> tuple[Buffer, int] | None:  # noqa: ARG002 - the protocol's
        """Return None: the bytes are in many places."""
        return None

    def read(self, span: ByteRange) -> Buffer:
        """Return some of the bytes."""
        return b"".join(self.pieces(ByteRange(0, self.nbytes)))[span.start : span.stop]

    def pieces(self, span: ByteRange) -> Iterator[Buffer]:  # noqa: ARG002 - of the whole
        """Yield all bytes."""
        return iter(self._lazy.tensor_to_write().buffers())

    def read_into(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers."""
        for start, into in parts:
            into[:] = memoryview(self.read(ByteRange(start, start + len(into))))

    def close(self) -> None:
        """Do nothing: the files of the ranks are closed by others."""


RANKS: Final = Kind("a checkpoint for tensor parallelism", _find, _open, check=_check, suffixes=(RANK_SET,))
"""A directory with the record of all ranks, or the record."""
