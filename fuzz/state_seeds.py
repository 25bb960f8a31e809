"""Valid states for the fuzzer to break. Together they contain every kind of node, tensor and alias."""

from __future__ import annotations

import datetime as dt
import enum
from collections import Counter, OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import torch

__all__ = ["states"]


class Phase(enum.Enum):
    """A member is data with a name."""

    TRAIN = 1


def states() -> list[dict[str, Any]]:
    """Return states of at most a few kilobytes each."""
    return [_plain(), _tied(), _composed(), _optimizer()]


def _plain() -> dict[str, Any]:
    inner = [1, -0.5, None]
    return {
        "scalars": [True, 2**70, float("nan"), 1j, "é", "\ud800", b"bytes", bytearray(b"more"), ...],
        "bytes": bytes(5_000),
        "containers": (inner, inner, {1, "a"}, frozenset({2}), deque([1, 2], 3), Counter("aab")),
        "ordered": OrderedDict([("a", 1), (3, 2), (("t", 1), 3), (None, 4), (2.5, 5), (b"k", 6)]),
        "times": [dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC), dt.timedelta(3), dt.date.min],
        "numbers": [Decimal("1.50"), Fraction(1, 3), range(1, 9, 2), slice(None, 3), UUID(int=5)],
        "named": [Phase.TRAIN, Path("a/b")],
    }


def _tied() -> dict[str, Any]:
    w = torch.arange(24.0).reshape(4, 6)
    z = torch.ones(3, dtype=torch.complex64)
    apart = torch.arange(10.0)
    return {
        "model": {"w": w, "t": w.t(), "row": w[1], "same": w.view(4, 6), "bytes": w.view(torch.uint8)[0]},
        "z": [z, z.conj(), z.imag],
        "parts": (apart[:6], apart[4:], torch.ones(1).expand(5)),
        "image": torch.zeros(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }


def _composed() -> dict[str, Any]:
    return {
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "wide": torch.ones(2, dtype=torch.complex128),
        "quantized": torch.quantize_per_tensor(torch.ones(4), 0.1, 3, torch.qint8),
        "torch": [torch.float32, torch.device("cpu"), torch.Size([2, 3]), torch.Generator()],
        "numpy": [np.float32(1), np.dtype("<f4"), np.array(["a", "bc"]), np.array([1, None], object)],
        "generator": np.random.default_rng(3),
        "times": np.array(["2026-11-21"], "M8[D]"),
    }


def _optimizer() -> dict[str, Any]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
