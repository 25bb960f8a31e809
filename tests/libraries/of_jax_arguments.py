"""Arguments of tensorkeep.jax, and numbers at the end of a template's range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import tensorkeep.jax
from tensorkeep.errors import IntegrityError, StateDictMismatchError, UnsupportedError
from tensorkeep.signing import PrivateKey, sign
from tests.libraries.jax_devices import CPUS
from tests.libraries.trees import check_equal

ONE = jnp.ones(2, jnp.float32)


def test_the_background_saves_shards_of_the_size_that_was_asked_for(tmp_path: Path) -> None:
    state = {name: jnp.full(1000, 1.5) for name in "abc"}

    tensorkeep.jax.save_async(state, tmp_path / "run", max_shard_size="5KB").result()
    tensorkeep.jax.save_async(state, tmp_path / "run.safetensors", max_shard_size="5KB").result()

    assert len(list((tmp_path / "run").glob("*.safetensors"))) == 3
    check_equal(tensorkeep.jax.load(tmp_path / "run"), state)
    check_equal(tensorkeep.jax.load(tmp_path / "run.safetensors"), state)


@pytest.mark.parametrize("name", ["run", "run.safetensors"])
@pytest.mark.parametrize("given", [{"max_shard_size": 0}, {"max_shard_size": "5 apples"}, {"timeout_s": 0}])
def test_invalid_arguments_are_refused_also_where_they_have_no_use(
    given: dict[str, Any], name: str, tmp_path: Path
) -> None:
    for save in (tensorkeep.jax.save, tensorkeep.jax.save_async):
        with pytest.raises(UnsupportedError):
            save({"w": ONE}, tmp_path / name, **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["verify", "trust"])
@pytest.mark.parametrize("axes", [("x", None), (None, "x")])
def test_shards_are_compared_with_their_digests(axes: tuple[str | None, ...], given: str, tmp_path: Path) -> None:
    key = PrivateKey.generate()
    key.write(tmp_path / "key.pem")
    path = tmp_path / "run" / "x.safetensors"
    path.parent.mkdir()
    tensorkeep.jax.save({"w": jnp.arange(64.0).reshape(8, 8), "step": 3}, path)
    sign(path, key)
    mesh = jax.make_mesh((4,), ("x",), devices=CPUS)
    shardings = {"w": NamedSharding(mesh, PartitionSpec(*axes)), "step": None}
    argument: dict[str, Any] = {"verify": True} if given == "verify" else {"trust": tmp_path / "key.pub"}

    loaded = tensorkeep.jax.load(path, shardings=shardings, **argument)
    assert loaded["w"].sharding == shardings["w"]
    assert np.array_equal(loaded["w"], np.arange(64.0).reshape(8, 8))

    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match="`w`"):
        tensorkeep.jax.load(path, shardings=shardings, **argument)


@pytest.mark.parametrize(
    ("number", "dtype", "words"),
    [
        (2**40, "int32", "int 1099511627776, not int32"),
        (-(2**31) - 1, "int32", "int -2147483649, not int32"),
        (2**70, "int32", "int of 71 bits, not int32"),
        (2**900, "int32", "int of 901 bits, not int32"),
        (1e300, "float32", r"float 1e\+300, not float32"),
        (complex(0, -1e300), "complex64", "complex .*, not complex64"),
    ],
)
def test_a_number_beyond_the_range_of_the_template_is_refused_by_its_place(
    number: Any, dtype: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.jax.save({"opt": {"step": number}}, path)

    for step in (jnp.zeros((), dtype), jax.ShapeDtypeStruct((), dtype), np.zeros((), dtype)):
        with pytest.raises(StateDictMismatchError, match=rf"opt\.step is {words}"):
            tensorkeep.jax.load(path, like={"opt": {"step": step}})
    assert tensorkeep.jax.load(path, like={"opt": {"step": type(number)(0)}}) == {"opt": {"step": number}}


def test_the_largest_numbers_fit(tmp_path: Path) -> None:
    numbers = {"int": 2**31 - 1, "least": -(2**31), "float": 1.5, "infinite": float("inf")}
    path = tmp_path / "x.safetensors"
    tensorkeep.jax.save(numbers, path)
    like = {name: np.zeros((), "int32" if isinstance(number, int) else "float32") for name, number in numbers.items()}

    check_equal(
        tensorkeep.jax.load(path, like=like), jax.tree.map(lambda n, old: np.array(n, old.dtype), numbers, like)
    )
