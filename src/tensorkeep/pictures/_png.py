"""An image of at most 256 colors as PNG. Pure."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Color = tuple[int, int, int]


def png(pixels: npt.NDArray[np.uint8], palette: Iterable[Color]) -> bytes:
    """Return an image whose pixels are places in a palette."""
    height, width = pixels.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with the number of its filter: 0, none
    rows[:, 1:] = pixels
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colors = bytes(part for color in palette for part in color)
    chunks = (b"IHDR", header), (b"PLTE", colors), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
