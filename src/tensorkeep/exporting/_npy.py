"""NumPy's files: an archive of arrays (`.npz`), and one array (`.npy`).

The data of each member of an archive begins at a multiple of 64 bytes, so that it can be used where it is mapped;
NumPy itself puts it anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from tensorkeep.arrays import TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.digests import CRC32
from tensorkeep.exporting._format import Content, ExportFormat, OutputFile, Plan
from tensorkeep.formats.archives import CRC_START, WrittenMember, emit_directory, emit_header, name_problem
from tensorkeep.formats.npy import ARRAY_DTYPES, MAX_ARRAY_NDIM, emit_array_header
from tensorkeep.limits import PACK_NBYTES
from tensorkeep.transport import ByteSink

_SUFFIX: Final = ".npy"
_ALIGNMENT: Final = 64


def _plan_archive(content: Content, name: str) -> Plan:
    return Plan((OutputFile(name, lambda sink: _Archive(content.tensors).write(sink)),))


def _plan_array(content: Content, name: str) -> Plan:
    (own_name, tensor), *_ = content.tensors.items()
    return Plan((OutputFile(name, partial(_write_array, tensor)),), names={own_name: "tensor"})


def _write_array(tensor: TensorToWrite, sink: ByteSink) -> None:
    head = emit_array_header(tensor.dtype.name, tensor.shape)
    sink.preallocate(len(head) + tensor.nbytes)
    sink.write([head])
    sink.write(tensor.buffers())


def _member_name_problem(name: str) -> str | None:
    if name.endswith(_SUFFIX):
        return f"NumPy would take the {_SUFFIX} at its end for the suffix of the member"
    return name_problem(name + _SUFFIX)


class _Archive:
    """Writes an archive in one pass; only checksums of large members are set afterwards."""

    def __init__(self, tensors: Mapping[str, TensorToWrite]) -> None:
        self._tensors = tensors
        self._members: list[WrittenMember] = []
        self._summed_late: list[WrittenMember] = []
        self._position = 0

    def write(self, sink: ByteSink) -> None:
        sink.write(self._pieces())
        for member in self._summed_late:
            sink.rewrite(member.offset + CRC_START, member.crc.to_bytes(4, "little"))
        sink.write([emit_directory(self._members, self._position)])

    def _pieces(self) -> Iterator[Buffer]:
        for name, tensor in self._tensors.items():
            head = emit_array_header(tensor.dtype.name, tensor.shape)
            member = WrittenMember((name + _SUFFIX).encode(), self._position, len(head) + tensor.nbytes)
            hasher = CRC32.new(False)
            if tensor.nbytes <= PACK_NBYTES:
                buffers = [head, *tensor.buffers()]
                for buffer in buffers:
                    hasher.update(buffer)
                member.crc = int.from_bytes(hasher.digest(), "big")
                yield self._header(member)
                yield from buffers
                continue
            yield self._header(member)
            hasher.update(head)
            yield head
            for buffer in tensor.buffers():
                hasher.update(buffer)
                yield buffer
            member.crc = int.from_bytes(hasher.digest(), "big")
            self._summed_late.append(member)

    def _header(self, member: WrittenMember) -> bytes:
        header = emit_header(member, align=_ALIGNMENT)
        self._members.append(member)
        self._position += len(header) + member.nbytes
        return header


NPZ: Final = ExportFormat(
    key="npz",
    what="a NumPy archive",
    suffixes=(".npz",),
    dtypes=ARRAY_DTYPES,
    plan=_plan_archive,
    name_problem=_member_name_problem,
    max_ndim=MAX_ARRAY_NDIM,
)

NPY: Final = ExportFormat(
    key="npy",
    what="a NumPy array",
    suffixes=(_SUFFIX,),
    dtypes=ARRAY_DTYPES,
    plan=_plan_array,
    max_ndim=MAX_ARRAY_NDIM,
    max_tensors=1,
)
