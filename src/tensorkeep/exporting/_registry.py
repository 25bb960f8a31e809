"""All formats to export to. To add one, add its record to `FORMATS`."""

from __future__ import annotations

import os
from typing import Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.exporting._format import ExportFormat
from tensorkeep.exporting._gguf import GGUF
from tensorkeep.exporting._hdf5 import HDF5
from tensorkeep.exporting._msgpack import MSGPACK
from tensorkeep.exporting._npy import NPY, NPZ
from tensorkeep.exporting._tensorflow import TENSORFLOW, TENSORFLOW_OBJECTS

FORMATS: Final[tuple[ExportFormat, ...]] = (NPZ, NPY, MSGPACK, HDF5, GGUF, TENSORFLOW, TENSORFLOW_OBJECTS)
"""Every format, in the order in which messages list them."""


def format_for(target: str, to: str | None) -> ExportFormat:
    """Return the format that the caller names, or else the one with the suffix of the target."""
    if to is not None:
        found = next((each for each in FORMATS if each.key == to.lower()), None)
        if found is None:
            raise UnsupportedError(
                "no such format to export to",
                expected="one of " + ", ".join(each.key for each in FORMATS),
                found=repr(to),
                hint=_hint(f".{to}"),
            )
        return found
    name = os.path.basename(target).lower()
    fitting = {suffix: each for each in FORMATS for suffix in each.suffixes if name.endswith(suffix)}
    if not fitting:
        raise UnsupportedError(
            "the name of the target does not say its format",
            path=target,
            expected="a name that ends in " + ", ".join(suffix for each in FORMATS for suffix in each.suffixes),
            hint=_hint(name) or "Or name the format: to= (--to) " + ", ".join(each.key for each in FORMATS),
        )
    return fitting[max(fitting, key=len)]


def _hint(name: str) -> str | None:
    if name.endswith(".safetensors"):
        return "`tensorkeep convert` (tensorkeep.convert) writes safetensors files"
    return None
