"""What each member of an archive is, by its path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.archives import Member, read_archive
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

MARK: Final = "archive_format"
LEGACY_GRAPH: Final = "serialized_exported_program.json"
"""Members by whose names archives of torch 2.8 and newer, and older ones, are recognized."""

WEIGHTS: Final = "data/weights/"
CONSTANTS: Final = "data/constants/"
COMPILED: Final = "data/aotinductor/"
PICKLED_OBJECTS: Final = ("data/constants/custom_obj_", "data/constants/opaque_obj_")
_EXTRA: Final = ("extra/", "extra_files/")
_LEFT: Final = {
    "models/": "a program, which is not run",
    "data/sample_inputs/": "example inputs of the program",
    COMPILED: "compiled code, which is not run",
    LEGACY_GRAPH: "a program, which is not run",
    "serialized_example_inputs.pt": "example inputs of the program",
}
_NOTES: Final = frozenset({
    MARK,
    "archive_version",
    "byteorder",
    "version",
    ".data/version",
    ".data/serialization_id",
})
_FIRST: Final = (
    *("data/weights/", "data/constants/", "data/aotinductor/", "data/executorch/", "data/sample_inputs/"),
    *("models/", "extra/", "archive_"),
)
_NAME_START: Final = 30
_HEAD_NBYTES: Final = 512
_ZIP: Final = b"PK\x03\x04"


class Package(msgspec.Struct, frozen=True):
    """An archive of torch.export.

    Attributes:
        source: The file.
        members: Path to member, without the top folder.
        is_legacy: Whether torch 2.7 or older wrote it.
    """

    source: ByteSource
    members: Mapping[str, Member]
    is_legacy: bool

    def left_out(self) -> dict[str, str]:
        """Return the path of each member that has no weights to what it is."""
        named = {path: what for path in self.members for start, what in _LEFT.items() if path.startswith(start)}
        return {path: what for path, what in named.items() if not path.endswith("weights_config.json")}

    def extra(self) -> list[Member]:
        """Return the texts that the user saved beside the program."""
        return [member for path, member in self.members.items() if path.startswith(_EXTRA)]

    def others(self, known: Iterable[str]) -> dict[str, str]:
        """Return each member that is neither known, nor about the archive, nor one that torch.export writes."""
        named = {*known, *_NOTES, *self.left_out()}
        rest = [path for path in self.members if path not in named and not path.startswith(_EXTRA)]
        return dict.fromkeys(rest, "a member that is not a weight of the program")

    def read(self, members: Iterable[Member]) -> dict[str, bytes]:
        """Return the contents of members by path, read together."""
        wanted = list(members)
        nbytes = sum(member.nbytes for member in wanted)
        if nbytes > MAX_INDEX_NBYTES:
            raise LimitError(
                "the texts of the program are too long",
                expected=f"at most {MAX_INDEX_NBYTES:,} bytes together",
                found=f"{nbytes:,}",
            )
        if packed := [member.name for member in wanted if member.is_compressed]:
            raise FormatError("a member of the program is compressed", expected="it as it is", found=packed[0])
        blocks = [(member, bytearray(member.nbytes)) for member in wanted if member.nbytes]
        self.source.read_into([(member.span.start, memoryview(block)) for member, block in blocks])
        return {member.name: b"" for member in wanted} | {member.name: bytes(block) for member, block in blocks}

    def read_weight(self, path: str, name: str) -> Member:
        """Return the member with the bytes of a tensor."""
        member = self.members.get(path)
        if member is None or member.is_compressed:
            raise FormatError(
                f"the bytes of tensor `{name}` are missing",
                tensor=name,
                expected=f"a member {path!r:.200} that is not compressed",
            )
        return member


def is_pickled(path: str) -> bool:
    """Say whether torch.export unpickles a member because of its name."""
    return path.endswith(".pt") or path.startswith(PICKLED_OBJECTS)


def is_pt2(source: ByteSource) -> bool:
    """Say whether a file is such an archive, by the name of its first member."""
    head = bytes(source.read(ByteRange(0, min(_HEAD_NBYTES, source.nbytes))))
    name = head[_NAME_START : _NAME_START + int.from_bytes(head[26:28], "little")].decode("ascii", "replace")
    return head.startswith(_ZIP) and (name == LEGACY_GRAPH or name.partition("/")[2].startswith(_FIRST))


def open_package(source: ByteSource) -> Package:
    """Read the directory of an archive."""
    head = bytes(source.read(ByteRange(0, min(_HEAD_NBYTES, source.nbytes))))
    if not head.startswith(_ZIP):
        raise FormatError("not a program of torch.export", expected="a zip archive", found=f"{head[:4]!r}")
    is_legacy = b"/" not in head[_NAME_START : _NAME_START + int.from_bytes(head[26:28], "little")]
    members = read_archive(source, has_top=not is_legacy).members
    if (LEGACY_GRAPH if is_legacy else MARK) not in members:
        raise FormatError(
            "not a program of torch.export",
            expected=f"a member {MARK} or {LEGACY_GRAPH}",
            found=f"{list(members)[:5]}",
        )
    package = Package(source, members, is_legacy)
    if not is_legacy and (mark := package.read([members[MARK]])[MARK]) != b"pt2":
        raise FormatError("not a program of torch.export", expected="the format 'pt2'", found=f"{mark[:50]!r}")
    return package
