"""GGUF files: numbers as they are or in Q8_0, blocks of other GGUF files as they were, all keys with their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.arrays import TensorToWrite
from tensorkeep.buffers import Buffer
from tensorkeep.errors import DtypeError, FormatError
from tensorkeep.exporting._content import WatchedTensor
from tensorkeep.exporting._format import Content, ExportFormat, OutputFile, Plan
from tensorkeep.formats.gguf import (
    ALIGNMENT_KEY,
    DEFAULT_ALIGNMENT,
    GGML_TYPES_BY_NAME,
    GgmlType,
    GgufRecord,
    TensorInfo,
    emit_header,
    padded,
    parse_texts,
)
from tensorkeep.tensors.quantized import BlocksToWrite, quantize_q8_0
from tensorkeep.transport import ByteSink

_Q8_0: Final = GGML_TYPES_BY_NAME["Q8_0"]
_MAX_NAME_NBYTES: Final = 63
_MAX_NDIM: Final = 4
_MAX_ALIGNMENT: Final = 2**20
_MAX_DIGITS: Final = 10
_FLOATS: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "F64": np.dtype("<f8"),
}
_ENCODED_KEYS: Final = {"general.quantization_version": 2, "general.file_type": 7}
"""What programs expect in a file of Q8_0: the version of ggml's blocks, and the type of most tensors."""


class _Planned(msgspec.Struct, frozen=True):
    """A tensor in the new file."""

    tensor: TensorToWrite
    type_: GgmlType
    shape: tuple[int, ...]
    is_encoded: bool

    @property
    def nbytes(self) -> int:
        return _nbytes_of_blocks(self.type_, self.shape) if self.is_encoded else self.tensor.nbytes


def _nbytes_of_blocks(type_: GgmlType, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor in blocks."""
    n_rows = 1
    for extent in shape[:-1]:
        n_rows *= extent
    return n_rows * type_.row_nbytes(shape[-1])


def _plan(content: Content, name: str) -> Plan:
    values, types, record = parse_texts(content.metadata)
    is_encoded = content.encoding is not None
    in_order = {key: content.tensors[key] for key in record.tensors if key in content.tensors} | dict(content.tensors)
    planned = {key: _planned(key, tensor, record, is_encoded=is_encoded) for key, tensor in in_order.items()}
    if is_encoded:
        values |= _ENCODED_KEYS
        types |= dict.fromkeys(_ENCODED_KEYS, "u32")
    _number_alignment(values, types)
    alignment = _alignment(values)
    infos: list[TensorInfo] = []
    start = 0
    for key, each in planned.items():
        infos.append(TensorInfo(key, each.shape, each.type_.number, start))
        start += padded(each.nbytes, alignment)
    head = emit_header(values, types, infos, alignment)

    def write(sink: ByteSink) -> None:
        sink.preallocate(len(head) + start)
        sink.write([head])
        for each in planned.values():
            sink.write(_encoded(each.tensor) if each.is_encoded else each.tensor.buffers())
            sink.write([bytes(-each.nbytes % alignment)])

    encoded = frozenset(key for key, each in planned.items() if each.is_encoded)
    return Plan((OutputFile(name, write),), encoded=encoded)


def _number_alignment(values: dict[str, Any], types: dict[str, Any]) -> None:
    """Make a number of an alignment that metadata have as a text: GGUF knows no other."""
    text = values.get(ALIGNMENT_KEY)
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < _MAX_DIGITS:
        values[ALIGNMENT_KEY], types[ALIGNMENT_KEY] = int(text), "u32"


def _alignment(values: dict[str, Any]) -> int:
    alignment = values.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise FormatError(
            f"no file can have the value of {ALIGNMENT_KEY}",
            expected=f"a power of two up to {_MAX_ALIGNMENT:,}",
            found=f"{alignment!r:.100}",
            hint=f"`tensorkeep edit --unset {ALIGNMENT_KEY}` removes it from safetensors files",
        )
    return alignment


def _planned(name: str, tensor: TensorToWrite, record: GgufRecord, *, is_encoded: bool) -> _Planned:
    """Return the type and shape that a tensor gets: its own dtype, Q8_0, or the type of its blocks."""
    dtype, shape = tensor.dtype.name, tensor.shape
    blocks = _blocks(tensor, record.tensors.get(name), is_big_endian=record.is_big_endian)
    if blocks is not None:
        type_, shape, is_big_endian = blocks
        if is_big_endian:
            raise DtypeError(
                f"the blocks of tensor `{name}` are from a big-endian file",
                tensor=name,
                expected="blocks with the lowest byte first",
                hint="Leave it out with drop= (--drop)",
            )
        return _Planned(tensor, type_, shape, is_encoded=False)
    if is_encoded and dtype in _FLOATS and len(shape) > 1 and shape[-1] % _Q8_0.n_per_block == 0:
        return _Planned(tensor, _Q8_0, shape, is_encoded=True)
    if dtype not in GGML_TYPES_BY_NAME:
        raise DtypeError(
            f"GGUF has no dtype for tensor `{name}`",
            tensor=name,
            expected="F32, F16, BF16, F64, I8 to I64, or bytes of blocks whose type is in the metadata",
            found=f"{dtype} {list(shape)}",
            hint="Leave it out with drop= (--drop)",
        )
    return _Planned(tensor, GGML_TYPES_BY_NAME[dtype], shape, is_encoded=False)


def _blocks(
    tensor: TensorToWrite, recorded: tuple[str, tuple[int, ...]] | None, *, is_big_endian: bool
) -> tuple[GgmlType, tuple[int, ...], bool] | None:
    """Return type, shape and byte order of blocks: of a GGUF file, or of bytes that the metadata describe."""
    inner = tensor.inner if isinstance(tensor, WatchedTensor) else tensor
    if isinstance(inner, BlocksToWrite):
        return GGML_TYPES_BY_NAME[inner.type_name], inner.numbers_shape, inner.is_big_endian
    if recorded is None or tensor.dtype.name != "U8":
        return None
    type_, shape = GGML_TYPES_BY_NAME.get(recorded[0]), recorded[1]
    if type_ is None or not shape or shape[-1] % type_.n_per_block or type_.raw_shape(shape) != tensor.shape:
        return None
    return type_, shape, is_big_endian


def _encoded(tensor: TensorToWrite) -> Iterator[Buffer]:
    """Yield the blocks of a tensor, made piece by piece."""
    rest = b""
    block_nbytes = _Q8_0.n_per_block * tensor.dtype.itemsize
    for buffer in tensor.buffers():
        data = rest + bytes(buffer) if rest else memoryview(buffer).cast("B")
        whole = len(data) // block_nbytes * block_nbytes
        if whole:
            yield quantize_q8_0(_numbers(tensor.dtype.name, data[:whole])).data
        rest = bytes(data[whole:])


def _numbers(dtype: str, data: Buffer) -> np.ndarray[Any, np.dtype[np.float32]]:
    stored = np.frombuffer(data, _FLOATS[dtype])
    if dtype == "BF16":
        return np.asarray((stored.astype(np.uint32) << np.uint32(16)).view(np.float32))
    with np.errstate(over="ignore"):
        return np.asarray(stored.astype(np.float32))


def _name_problem(name: str) -> str | None:
    nbytes = len(name.encode())
    return f"{nbytes} bytes, and ggml reads up to {_MAX_NAME_NBYTES}" if nbytes > _MAX_NAME_NBYTES else None


GGUF: Final = ExportFormat(
    key="gguf",
    what="a GGUF file",
    suffixes=(".gguf",),
    dtypes=frozenset({"U8", *GGML_TYPES_BY_NAME}),
    plan=_plan,
    name_problem=_name_problem,
    max_ndim=_MAX_NDIM,
    holds_metadata=True,
    encodings=frozenset({"q8_0"}),
    advice={"F8_E4M3": "If these are scales of NVFP4, relabel it first (tensorkeep transform relabel --to gguf)"},
)
