"""A format that nobody uses: a line of JSON, and then the elements. One parse function and one record make it a kind.

TOY1\n
{"w": {"dtype": "F32", "shape": [2, 3], "start": 0, "crc": 1234, "order": "F", "endian": ">"}, ...}\n
elements
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tensorkeep.digests import CRC32
from tensorkeep.dtypes import ALL_BY_NAME, find_dtype
from tensorkeep.formats import Checksum, FileContents, TensorPlace
from tensorkeep.kinds import file_kind
from tensorkeep.transport import ByteRange, ByteSource

MAGIC = b"TOY1\n"


def parse_toy(source: ByteSource) -> FileContents:
    """Read the header of a toy file."""
    text = bytes(source.read(ByteRange(0, source.nbytes)))
    head = text[len(MAGIC) : text.index(b"\n", len(MAGIC))]
    data_start = len(MAGIC) + len(head) + 1
    return FileContents({name: _place(member, data_start) for name, member in json.loads(head).items()}, {"toy": "1"})


def _place(member: dict[str, Any], data_start: int) -> TensorPlace:
    shape, start = tuple(member["shape"]), data_start + member["start"]
    strides = tuple(int(np.prod(shape[:axis])) for axis in range(len(shape))) if member["order"] == "F" else None
    nbytes = ALL_BY_NAME[member["dtype"]].nbytes(int(np.prod(shape)))
    checksum = Checksum(CRC32, member["crc"].to_bytes(4, "big"), ByteRange(start, start + nbytes))
    is_big = member["endian"] == ">"
    return TensorPlace(member["dtype"], shape, start, strides=strides, is_big_endian=is_big, checksum=checksum)


TOY = file_kind("a toy file", parse_toy, suffixes=(".toy",), magic=MAGIC, only_tensors=True)


def save_toy(arrays: dict[str, np.ndarray[Any, Any]], path: Path) -> None:
    """Write arrays in turn as they are, in Fortran order, and with the highest byte first."""
    head: dict[str, Any] = {}
    data = b""
    for place, (name, array) in enumerate(arrays.items()):
        order, endian = "CFC"[place % 3], "<<>"[place % 3]
        content = array.astype(array.dtype.newbyteorder(endian)).tobytes(order)
        dtype = find_dtype(array.dtype).name
        member = {"dtype": dtype, "shape": array.shape, "start": len(data), "crc": zlib.crc32(content)}
        head[name] = member | {"order": order, "endian": endian}
        data += content
    path.write_bytes(MAGIC + json.dumps(head).encode() + b"\n" + data)
