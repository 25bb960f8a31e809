"""The reference and ourselves, side by side."""

from types import SimpleNamespace

import pytest
import safetensors
import safetensors.numpy
import safetensors.torch

import tensorkeep
import tensorkeep.numpy
import tensorkeep.torch
from tensorkeep.compat import _safe_open_handle

REFERENCE = SimpleNamespace(
    base=safetensors, torch=safetensors.torch, numpy=safetensors.numpy, handle=safetensors._safe_open_handle
)
OURS = SimpleNamespace(base=tensorkeep, torch=tensorkeep.torch, numpy=tensorkeep.numpy, handle=_safe_open_handle)


@pytest.fixture
def reference():
    return REFERENCE


@pytest.fixture
def ours():
    return OURS


@pytest.fixture(params=[REFERENCE, OURS], ids=["reference", "tensorkeep"])
def either(request):
    return request.param
