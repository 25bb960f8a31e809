"""The forms in which values are saved, and reading them back by running them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

PROTOCOLS = (2, 3, 4, 5)
FORMS: dict[str, dict[str, Any]] = {
    "zip-2": {"pickle_protocol": 2},
    "zip-3": {"pickle_protocol": 3},
    "zip-4": {"pickle_protocol": 4},
    "zip-5": {"pickle_protocol": 5},
    "legacy-2": {"pickle_protocol": 2, "_use_new_zipfile_serialization": False},
    "legacy-5": {"pickle_protocol": 5, "_use_new_zipfile_serialization": False},
}
"""Name to what `torch.save` is told."""


def saved(value: Any, form: str = "zip-2") -> bytes:
    """Return what `torch.save` writes."""
    buffer = io.BytesIO()
    torch.save(value, buffer, **FORMS[form])
    return buffer.getvalue()


def run(file: bytes) -> Any:
    """Return what torch makes of a file that we have just written ourselves, by running it."""
    return torch.load(io.BytesIO(file), weights_only=False)


def pickled(value: Any, protocol: int) -> bytes:
    """Return a bare pickle."""
    return pickle.dumps(value, protocol)
