"""The weights and constants of a program, and what else its archive holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorkeep.collector import PausedCollector
from tensorkeep.digests import CRC32
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import FormatError
from tensorkeep.formats._chunks import Checksum
from tensorkeep.formats._contents import FileContents, TensorPlace
from tensorkeep.formats.archives import Member
from tensorkeep.formats.pt2._members import COMPILED, CONSTANTS, WEIGHTS, Package, is_pickled, open_package
from tensorkeep.formats.pt2._payloads import Payload, View, parse_compiled_weights, parse_payloads, view_of
from tensorkeep.formats.pt2._pickled import Found, Pickled, read_pickled
from tensorkeep.transport import ByteSource

_CONFIGS = {WEIGHTS: "_weights_config.json", CONSTANTS: "_constants_config.json"}
_COMPILED_CONFIG = "/weights_config.json"
_WHOLE = ".pt"
"""Suffix of a pickle of all weights or constants of a program, as older versions of torch wrote them."""

_LEGACY_STATES = ("serialized_state_dict.pt", "serialized_constants.pt")


class ProgramContents(FileContents, frozen=True):
    """What an archive holds.

    Attributes:
        programs: Path of each member that has no weights to what it is; a conversion leaves them out.
    """

    programs: Mapping[str, str] = {}


def parse_pt2(source: ByteSource) -> ProgramContents:
    """Read the directory of an archive, and where its weights are."""
    with PausedCollector():
        return _Reader(open_package(source)).read()


class _Reader:
    """Reads one archive; a member is opened once, whatever number of weights are in it."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._known: set[str] = set()
        self._marked: set[str] = set()
        """Members that a list of weights calls pickles."""

        self._pickled: dict[str, Pickled] = {}
        self._sums: dict[str, Checksum | None] = {}
        self._is_big_endian = False

    def read(self) -> ProgramContents:
        package = self._package
        configs = [member for path, member in package.members.items() if path.endswith(".json") and _folder_of(path)]
        notes = [package.members[name] for name in ("byteorder",) if name in package.members]
        texts = package.read([*configs, *notes, *package.extra()])
        self._is_big_endian = texts.get("byteorder") == b"big"
        models = {_model_of(path) for path in package.members} - {None}
        tensors: dict[str, TensorPlace] = {}
        unknowns: dict[str, str] = {}
        for model, name, found in self._all(texts):
            full = f"{model}.{name}" if len(models) > 1 else name
            if full in tensors or full in unknowns:
                raise FormatError("two weights of the program have one name", tensor=full, found=repr(full)[:200])
            if isinstance(found, str):
                unknowns[full] = found
            else:
                tensors[full] = found
        unknowns |= {path: what for path, what in package.others(self._known).items() if path not in tensors}
        metadata: dict[str, str] = {}
        for member in package.extra():
            try:
                metadata[member.name] = texts[member.name].decode()
            except UnicodeDecodeError:
                unknowns[member.name] = "bytes that are not text, saved beside the program"
        return ProgramContents(
            tensors, metadata, unknowns=unknowns, pickles=self._pickles(), programs=package.left_out()
        )

    def _pickles(self) -> tuple[str, ...]:
        """Return the members that torch.export unpickles."""
        return tuple(path for path in self._package.members if path in self._marked or is_pickled(path))

    def _all(self, texts: Mapping[str, bytes]) -> Iterator[tuple[str, str, Found]]:
        """Yield model, name, and where it is, of every weight and constant."""
        for path, member in self._package.members.items():
            folder, model = _folder_of(path), _model_of(path) or ""
            if path in _LEGACY_STATES or (folder in _CONFIGS and path.endswith(_WHOLE)):
                self._known.add(path)
                if member.nbytes:  # nothing at all is how some versions write no constants
                    yield from ((model, name, found) for name, found in self._open(member).tensors().items())
            elif folder == COMPILED:
                for name, (own, view) in parse_compiled_weights(texts[path], path).items():
                    yield model, name, self._open(self._member(WEIGHTS + own, name)).view(view)
                self._known.add(path)
            elif folder and path in texts:
                self._known.add(path)
                payloads = parse_payloads(texts[path], path)
                _refuse_two_dtypes(payloads)
                for name, payload in payloads.items():
                    yield model, name, self._find(folder, name, payload)

    def _find(self, folder: str, name: str, payload: Payload) -> Found:
        member = self._member(folder + payload.path_name, name)
        if payload.use_pickle:
            self._marked.add(folder + payload.path_name)
        if payload.use_pickle and payload.tensor_meta is not None:
            return self._open(member).tensor()
        view = view_of(name, payload)
        return view if isinstance(view, str) else self._raw(name, member, view)

    def _raw(self, name: str, member: Member, view: View) -> Found:
        dtype = view.dtype or ""
        stop = view.stop(dtype)
        if stop and not member.nbytes:
            return "a tensor whose elements were not saved"
        if stop > member.nbytes:
            raise FormatError(
                f"tensor `{name}` is larger than its storage",
                tensor=name,
                expected=f"at most {member.nbytes:,} bytes in member {member.name!r:.200}",
                found=f"{stop:,}",
            )
        return TensorPlace(
            dtype,
            view.shape,
            member.span.start + (ALL_BY_NAME[dtype].nbytes(view.offset) if stop else 0),
            strides=view.strides,
            is_big_endian=self._is_big_endian,
            checksum=self._sum(member),
        )

    def _member(self, path: str, name: str) -> Member:
        self._known.add(path)
        return self._package.read_weight(path, name)

    def _open(self, member: Member) -> Pickled:
        if member.name not in self._pickled:
            self._pickled[member.name] = read_pickled(self._package.source, member)
        return self._pickled[member.name]

    def _sum(self, member: Member) -> Checksum | None:
        """Return the checksum of a member, one object for all its tensors, so that it is summed once."""
        if member.name not in self._sums:
            expected = member.crc.to_bytes(4, "big")
            self._sums[member.name] = Checksum(CRC32, expected, member.span) if member.crc else None
        return self._sums[member.name]


def _folder_of(path: str) -> str:
    """Return the folder of a file that says where weights are, or of a pickle of all; empty for other members."""
    for folder, suffix in _CONFIGS.items():
        rest = path.removeprefix(folder)
        if rest != path and "/" not in rest and rest.endswith((suffix, _WHOLE)):
            return folder
    return COMPILED if path.startswith(COMPILED) and path.endswith(_COMPILED_CONFIG) else ""


def _model_of(path: str) -> str | None:
    """Return the name of the program whose weights a member lists; None if it lists none."""
    folder = _folder_of(path)
    if not folder:
        return None
    rest = path.removeprefix(folder)
    if folder == COMPILED:
        return rest.removesuffix(_COMPILED_CONFIG)
    return rest.removesuffix(_CONFIGS[folder]).removesuffix(_WHOLE)


def _refuse_two_dtypes(payloads: Mapping[str, Payload]) -> None:
    """Refuse a storage with views of two dtypes: torch takes the first one's for all of it."""
    first: dict[str, int] = {}
    for name, payload in payloads.items():
        meta = payload.tensor_meta
        if (
            meta is not None
            and not payload.use_pickle
            and first.setdefault(payload.path_name, meta.dtype) != meta.dtype
        ):
            raise FormatError(
                f"tensor `{name}` has another dtype than others in the same storage",
                tensor=name,
                expected=f"dtype {first[payload.path_name]}",
                found=f"{meta.dtype}",
            )
