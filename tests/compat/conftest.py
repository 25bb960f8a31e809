"""The reference and ourselves, side by side."""

from types import SimpleNamespace

import pytest
import safetensors
import safetensors.numpy
import safetensors.torch

import tensorkeep
import tensorkeep.numpy
import tensorkeep.torch

REFERENCE = SimpleNamespace(base=safetensors, torch=safetensors.torch, numpy=safetensors.numpy)
OURS = SimpleNamespace(base=tensorkeep, torch=tensorkeep.torch, numpy=tensorkeep.numpy)


@pytest.fixture
def reference():
    return REFERENCE


@pytest.fixture
def ours():
    return OURS


@pytest.fixture(params=[REFERENCE, OURS], ids=["reference", "tensorkeep"])
def either(request):
    return request.param
