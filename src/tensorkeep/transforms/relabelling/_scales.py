"""Scales in another layout, which may have their reciprocals. Pure.

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
from tensorkeep.transforms.relabelling._names import PartNames

Scale = npt.NDArray[np.float32]

METADATA_KEY: Final = "nvfp4_scales"
"""Metadata that has the scales which reciprocals lose."""


class Original(msgspec.Struct, frozen=True, omit_defaults=True):
    """A scale as it was.

    Attributes:
        shape: Its shape.
        bits: Its bits in F32, in hexadecimal digits.
        layout: The layout that it was in; in files of earlier versions, empty.
    """

    shape: tuple[int, ...]
    bits: str
    layout: str = ""

    def scale(self) -> Scale | None:
        """Return the scale; None if the text does not fit."""
        try:
            return np.frombuffer(bytes.fromhex(self.bits), "<f4").reshape(self.shape)
        except ValueError:
            return None


def carried(name: str, scale: Scale, old: PartNames, new: PartNames, original: Original | None) -> Scale:
    """Return a scale as another layout has it: as it was there before, if `original` tells."""
    before = None if original is None else _original_of(scale, original, flips=old.divides != new.divides)
    if before is not None and original is not None and original.layout in {"", new.key}:
        return before
    value = before if before is not None else reciprocal(name, scale) if old.divides != new.divides else scale
    return value.reshape(new.scalar if value.size == 1 else value.shape)


def reciprocal(name: str, scale: Scale) -> Scale:
    """Return one divided by a scale."""
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / scale
    if not (np.isfinite(inverse) & np.isfinite(scale) & (inverse != 0)).all():
        raise RefusedError(
            f"scale `{name}` has no reciprocal",
            tensor=name,
            expected="finite numbers other than 0",
            found=", ".join(map(str, scale.reshape(-1)[:3])),
        )
    return np.asarray(inverse)


def lost(name: str, scale: Scale, value: Scale, old: PartNames, new: PartNames) -> Original | None:
    """Return what the way back from a new value needs to give this scale again; None if it does without."""
    again = carried(name, value, new, old, None)
    if again.shape == scale.shape and again.tobytes() == scale.tobytes():
        return None
    return Original(scale.shape, scale.astype("<f4").tobytes().hex(), old.key)


def _original_of(value: Scale, original: Original, *, flips: bool) -> Scale | None:
    """Return the scale that was kept, if this is what it became."""
    scale = original.scale()
    if scale is None or scale.size != value.size:
        return None
    made = scale.reshape(-1)
    if flips:
        with np.errstate(all="ignore"):
            made = np.float32(1) / made
    return scale if made.tobytes() == value.reshape(-1).tobytes() else None


def originals_in(metadata: Mapping[str, str]) -> dict[str, Original]:
    """Return what metadata kept, by the names that scales have now; nothing if it is malformed."""
    try:
        return msgspec.json.decode(metadata.get(METADATA_KEY, "{}"), type=dict[str, Original])
    except (msgspec.DecodeError, RecursionError):
        return {}


def emit_originals(originals: Mapping[str, Original]) -> dict[str, str]:
    """Return metadata that keeps scales; empty without any."""
    return {METADATA_KEY: msgspec.json.encode(originals).decode()} if originals else {}
