"""tensorkeep.flax gives what safetensors.flax gives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.libraries.face import NUMPY, WIDE, Face, array_of


class TestFlax(Face):
    module = "flax"
    dtypes = (*NUMPY, "bfloat16")
    loaded_only = WIDE

    def tensor(self, array: Any) -> Any:
        return jnp.asarray(array)

    def numbers(self, tensor: Any) -> Any:
        return tensor.dtype, tensor.shape, np.asarray(tensor).tobytes(), tensor.committed, tensor.devices()


class TestFlaxWith64Bits(TestFlax):
    dtypes = (*NUMPY, "bfloat16", *WIDE)

    @pytest.fixture(autouse=True)
    def bits(self) -> Any:
        with jax.enable_x64(True):
            yield


def test_integers_beyond_32_bits_wrap_as_in_jax() -> None:
    import safetensors.flax
    import safetensors.numpy

    import tensorkeep.flax

    content = safetensors.numpy.save({"w": np.array([2**40 + 3, -(2**33), 5]), "v": np.array([1e300, 1e-300, 0.1])})
    ours, theirs = tensorkeep.flax.load(content), safetensors.flax.load(content)
    assert {name: value.tolist() for name, value in ours.items()} == {
        name: value.tolist() for name, value in theirs.items()
    }


def test_helpers() -> None:
    from tensorkeep.flax import _jnp2np, _np2jnp

    made = _np2jnp({"w": array_of("float32", (2, 3))})
    assert isinstance(made["w"], jax.Array)
    assert type(_jnp2np(made)["w"]) is np.ndarray
