"""Scales and their reciprocals in F32. Pure.

Not every number is the reciprocal of its reciprocal: some are the reciprocal of no F32 at all. So what a reciprocal
loses, bits or a shape, is kept as text, from which the way back takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.errors import RefusedError

Scale = npt.NDArray[np.float32]

METADATA_KEY: Final = "nvfp4_scales"
"""Metadata that has the scales which reciprocals lose."""


class Original(msgspec.Struct, frozen=True):
    """A scale as it was.

    Attributes:
        shape: Its shape.
        bits: Its bits in F32, in hexadecimal digits.
    """

    shape: tuple[int, ...]
    bits: str

    def scale(self) -> Scale | None:
        """Return the scale; None if the text does not fit."""
        try:
            return np.frombuffer(bytes.fromhex(self.bits), "<f4").reshape(self.shape)
        except ValueError:
            return None


def reciprocal(name: str, scale: Scale, scalar: tuple[int, ...]) -> Scale:
    """Return one divided by a scale, and a single number in the shape that single ones have."""
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / scale
    if not (np.isfinite(inverse) & np.isfinite(scale) & (inverse != 0)).all():
        raise RefusedError(
            f"scale `{name}` has no reciprocal",
            tensor=name,
            expected="finite numbers other than 0",
            found=", ".join(map(str, scale.reshape(-1)[:3])),
        )
    return inverse.reshape(scalar if inverse.size == 1 else inverse.shape)


def lost(name: str, scale: Scale, inverse: Scale, scalar: tuple[int, ...]) -> Original | None:
    """Return what the way back needs to give this scale again; None if it does without."""
    again = reciprocal(name, inverse, scalar)
    if again.shape == scale.shape and again.tobytes() == scale.tobytes():
        return None
    return Original(scale.shape, scale.astype("<f4").tobytes().hex())


def original_of(inverse: Scale, original: Original | None) -> Scale | None:
    """Return the scale that was kept, if this is its reciprocal."""
    scale = None if original is None else original.scale()
    if scale is None or scale.size != inverse.size:
        return None
    with np.errstate(all="ignore"):
        made = np.float32(1) / scale.reshape(-1)
    return scale if made.tobytes() == inverse.reshape(-1).tobytes() else None


def originals_in(metadata: Mapping[str, str]) -> dict[str, Original]:
    """Return what metadata kept, by the names that scales have now; nothing if it is malformed."""
    try:
        return msgspec.json.decode(metadata.get(METADATA_KEY, "{}"), type=dict[str, Original])
    except (msgspec.DecodeError, RecursionError):
        return {}


def emit_originals(originals: Mapping[str, Original]) -> dict[str, str]:
    """Return metadata that keeps scales; empty without any."""
    return {METADATA_KEY: msgspec.json.encode(originals).decode()} if originals else {}
