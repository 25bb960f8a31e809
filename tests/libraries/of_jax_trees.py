"""tensorkeep.jax: pytrees come back as they were, by a template, or nothing is made at all."""

from __future__ import annotations

import inspect
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.flax
import safetensors.numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import GetAttrKey, Partial, register_dataclass, register_pytree_node, register_pytree_with_keys

import tensorkeep
import tensorkeep.jax
from tensorkeep.arrays.jax import weak
from tensorkeep.errors import (
    DtypeError,
    FormatError,
    LimitError,
    StateDictMismatchError,
    StateError,
    UnsupportedError,
)
from tests.libraries.jax_devices import CPUS
from tests.libraries.trees import check_equal

ONE = jnp.ones(2, jnp.float32)


class Moments(NamedTuple):
    mean: Any
    spread: Any


@register_dataclass
@dataclass
class Layer:
    kernel: Any
    bias: Any


class Pair:
    def __init__(self, *parts: Any) -> None:
        self.parts = parts


register_pytree_node(Pair, lambda pair: (pair.parts, None), lambda _, parts: Pair(*parts))


def saved(tree: Any, folder: Path) -> Path:
    tensorkeep.jax.save(tree, folder / "x.safetensors", durable=False)
    return folder / "x.safetensors"


CONTAINERS = {
    "dicts, lists and tuples": {"a": [ONE, (ONE * 2, ONE * 3)], "b": {"c": ONE}, "d": {1: {2: ONE}}},
    "named tuples": Moments(ONE, Moments(ONE * 2, ())),
    "dataclasses": {"layers": [Layer(ONE, None), Layer(ONE, ONE)]},
    "classes without keys": Pair(ONE, ONE * 2),
    "functions of arrays": Partial(jnp.add, ONE),
    "other dicts": {"o": OrderedDict(b=ONE, a=ONE), "d": defaultdict(list, z=ONE, y=ONE)},
    "nothing": {"a": {}, "b": [], "c": (), "d": None, "e": [None, {}]},
    "one array": ONE,
    "only None": None,
    "an empty list": [],
    "names with dots and slashes": {"a.b": ONE, "a": {"b": ONE * 2, "": ONE * 3}, "": {"": ONE * 4}, "x/y": ONE * 5},
    "keys that are tuples": {(0, "a"): ONE, (0, "b"): ONE},
    "200 levels": reduce(lambda tree, _: {"k": tree}, range(200), ONE),
    "one array twice": [ONE, {"again": ONE}],
}

LEAVES = {
    "weak": jnp.asarray(1.5),
    "weak, several": jnp.broadcast_to(jnp.asarray(2), (3,)),
    "no elements": jnp.zeros((0, 3)),
    "no dimensions": jnp.float32(2),
    "NaN": jnp.asarray(np.array([0x7FC12345, 0xFFC00001, 0x80000000], np.uint32).view(np.float32)),
    "raw key": jax.random.PRNGKey(3),
    "many keys": jax.random.split(jax.random.key(5), (2, 3)),
    **{f"key of {impl}": jax.random.key(7, impl=impl) for impl in ("threefry2x32", "rbg", "unsafe_rbg")},
    **{
        name: jnp.asarray(np.arange(3).astype(name))
        for name in (
            *("bool", "int8", "uint32", "float16", "bfloat16", "complex64", "int2", "int4", "uint4"),
            *("float8_e3m4", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2", "float8_e8m0fnu"),
        )
    },
    "number": 3,
    "large number": 2**80,
    "fraction": 0.1,
    "complex": 1 - 2j,
    "truth": True,
    "text": "adam",
    "bytes": b"\0\1",
    "NumPy's number": np.float64(0.1),
    "NumPy's bfloat16": jnp.bfloat16.dtype.type(1.5),
    "NumPy's array": np.arange(6.0).reshape(2, 3),
    "NumPy's Fortran array": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "NumPy's dates": np.array(["2026-01-01"], "datetime64[D]"),
    "NumPy's text": np.array(["a", "bc"]),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_come_back(name: str, tmp_path: Path) -> None:
    tree = CONTAINERS[name]
    path = saved(tree, tmp_path)

    check_equal(tensorkeep.jax.load(path, like=tree), tree)
    check_equal(tensorkeep.jax.restore(tensorkeep.load(path), tree), tree)
    loaded = tensorkeep.jax.load(path)
    check_equal(loaded, tensorkeep.jax.capture(tree))
    leaves = [leaf for leaf in jax.tree.leaves(loaded) if isinstance(leaf, jax.Array)]
    assert len({id(leaf) for leaf in leaves}) == len({id(leaf) for leaf in jax.tree.leaves(tree)})


def test_leaves_come_back(tmp_path: Path) -> None:
    path = saved(LEAVES, tmp_path)

    check_equal(tensorkeep.jax.load(path, like=LEAVES), LEAVES)
    check_equal(tensorkeep.jax.restore(tensorkeep.load(path), LEAVES), LEAVES)
    check_equal(tensorkeep.jax.load(path), LEAVES)
    check_equal(tensorkeep.load(path), LEAVES)


def test_a_directory_and_the_background(tmp_path: Path) -> None:
    tree = {"state": Layer(ONE, jax.random.key(0)), "step": 3}

    tensorkeep.jax.save(tree, tmp_path / "checkpoint", max_shard_size=8)
    donated = jax.jit(lambda x: x + 0)(ONE)
    tensorkeep.jax.save_async(tree | {"w": donated}, tmp_path / "later.safetensors").wait()
    donated.delete()

    check_equal(tensorkeep.jax.load(tmp_path / "checkpoint", like=tree), tree)
    assert len(list((tmp_path / "checkpoint").glob("*.safetensors"))) > 1
    check_equal(tensorkeep.jax.load(tmp_path / "later.safetensors", like=tree | {"w": ONE}), tree | {"w": ONE})


def test_what_only_describes_arrays_is_a_template(tmp_path: Path) -> None:
    tree = {"layer": Layer(ONE, jnp.asarray(2.0)), "key": jax.random.key(0, impl="rbg")}

    loaded = tensorkeep.jax.load(saved(tree, tmp_path), like=jax.eval_shape(lambda: tree))

    check_equal(loaded, tree)


def test_deleted_arrays_are_a_template(tmp_path: Path) -> None:
    old = jnp.zeros(2)
    path = saved({"w": ONE}, tmp_path)
    old.delete()

    check_equal(tensorkeep.jax.load(path, like={"w": old}), {"w": ONE})


def test_numbers_and_arrays_of_one_element_take_each_others_place(tmp_path: Path) -> None:
    array = jnp.asarray(3) + 0

    from_array = tensorkeep.jax.load(saved({"step": array}, tmp_path), like={"step": 0})
    from_number = tensorkeep.jax.load(saved({"step": 3}, tmp_path), like={"step": array})

    check_equal(from_array, {"step": array})
    check_equal(from_number, {"step": jnp.asarray(3)})
    for template in (0.5, True, jnp.float32(0), jnp.zeros(1, jnp.int32), "3", None):
        with pytest.raises(StateDictMismatchError, match="step is"):
            tensorkeep.jax.load(saved({"step": 3}, tmp_path), like={"step": template})


def test_everything_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = saved(
        {"layer": Layer(jnp.ones((2, 3)), ONE), "key": jax.random.key(0), "kind": "a", "none": None, "old": [ONE]},
        tmp_path,
    )
    like = {
        "layer": Layer(jnp.ones((3, 2)), ONE.astype(jnp.bfloat16)),
        "key": jax.random.key(0, impl="rbg"),
        "kind": 1,
        "none": ONE,
        "new": Moments(ONE, 2),
    }

    with pytest.raises(StateDictMismatchError) as caught:
        tensorkeep.jax.load(path, like=like)

    error = caught.value
    assert error.missing == ("none", "new.mean", "new.spread")
    assert error.unexpected == ("old.0",)
    assert error.mismatched == (
        ("layer.kernel", (3, 2), (2, 3)),
        ("layer.bias", (2,), (2,)),
        ("key", (), ()),
        ("kind", (), ()),
    )
    for part in ("layer.bias is float32 [2], not bfloat16 [2]", "key is key<fry> [], not key<rbg> []", "kind is str"):
        assert part in str(error)
    assert error.path == str(path)


def test_what_only_the_file_has_is_left_out_on_request(tmp_path: Path) -> None:
    path = saved({"params": {"w": ONE}, "opt_state": [ONE]}, tmp_path)

    with pytest.raises(StateDictMismatchError, match=r"opt_state\.0 is only in the file"):
        tensorkeep.jax.load(path, like={"params": {"w": ONE}})
    check_equal(tensorkeep.jax.load(path, like={"params": {"w": ONE}}, strict=False), {"params": {"w": ONE}})
    for like in ({"params": ONE}, {"params": {"w": {"x": ONE}}}, [ONE], {"params": {"w": ONE, "v": ONE}}):
        with pytest.raises(StateDictMismatchError):
            tensorkeep.jax.load(path, like=like, strict=False)


def test_arrays_go_where_the_template_or_the_caller_says(tmp_path: Path) -> None:
    split = NamedSharding(Mesh(np.array(CPUS), ("x",)), PartitionSpec("x"))
    tree = {"w": jnp.arange(8.0), "keys": jax.random.split(jax.random.key(0), 4), "n": [jnp.ones(4), 3]}
    path = saved(tree, tmp_path)
    there = {"w": jax.device_put(tree["w"], split), "keys": tree["keys"], "n": [jax.device_put(ONE, CPUS[2]), 3]}
    there["n"][0] = jnp.ones(4, device=CPUS[2])

    loaded = tensorkeep.jax.load(path, like=there)
    assert loaded["w"].sharding == split
    assert loaded["n"][0].devices() == {CPUS[2]}
    assert not loaded["keys"].committed
    for like in (None, tree):
        everywhere = tensorkeep.jax.load(path, like=like, shardings=split)
        assert {everywhere["w"].sharding, everywhere["keys"].sharding, everywhere["n"][0].sharding} == {split}
        placed = tensorkeep.jax.load(path, like=like, shardings={"w": split, "keys": None, "n": CPUS[1]})
        assert placed["w"].sharding == split
        assert placed["n"][0].devices() == {CPUS[1]}
        check_equal(placed, tree)
    for wrong in ({"w": split}, {"w": {"x": split}, "keys": None, "n": None}, "cpu"):
        with pytest.raises(UnsupportedError, match="`shardings`"):
            tensorkeep.jax.load(path, like=tree, shardings=wrong)
    with jax.default_device(CPUS[3]):
        moved = tensorkeep.jax.load(path, like=tree)
        assert moved["w"].devices() == moved["keys"].devices() == {CPUS[3]}
        assert not moved["w"].committed


def test_a_described_sharding_is_over_the_mesh_that_is_set(tmp_path: Path) -> None:
    mesh = jax.make_mesh((4,), ("x",), devices=CPUS)
    split = NamedSharding(mesh, PartitionSpec("x"))
    tree = {"w": jax.device_put(jnp.arange(8.0), split)}
    path = saved(tree, tmp_path)
    described = jax.eval_shape(lambda: tree)

    with jax.set_mesh(mesh):
        assert tensorkeep.jax.load(path, like=described)["w"].sharding == split
    with pytest.raises(UnsupportedError, match=r"'w' is over a mesh without devices.*jax\.set_mesh"):
        tensorkeep.jax.load(path, like=described)
    assert tensorkeep.jax.load(path, like=described, shardings=split)["w"].sharding == split


def test_others_read_the_arrays_by_obvious_names(tmp_path: Path) -> None:
    path = saved({"params": {"Dense_0": Layer(jnp.ones((2, 3)), ONE)}, "key": jax.random.key(1)}, tmp_path)

    arrays = safetensors.numpy.load_file(path)

    assert set(arrays) == {"params.Dense_0.kernel", "params.Dense_0.bias", "key"}
    assert arrays["params.Dense_0.kernel"].shape == (2, 3)
    assert arrays["key"].tolist() == [0, 1]


def test_a_file_of_names_fills_a_template(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.flax.save_file({"params.a.w": ONE, "params.b.0": ONE * 2}, path)

    tree = {"params": {"a": {"w": ONE}, "b": [ONE * 2]}}
    check_equal(tensorkeep.jax.load(path, like=tree), tree)
    with pytest.raises(StateDictMismatchError) as caught:
        tensorkeep.jax.load(path, like={"params": {"a": {"w": ONE}, "c": ONE}})
    assert (caught.value.missing, caught.value.unexpected) == (("params.c",), ("params.b.0",))


def test_what_was_saved_without_capture_fills_a_template(tmp_path: Path) -> None:
    tree = {"m": Moments(ONE, np.float32(2)), "layers": [Layer(ONE, None)]}
    tensorkeep.save(tree, tmp_path / "x.safetensors")

    check_equal(tensorkeep.jax.load(tmp_path / "x.safetensors", like=tree), tree)
    state = tensorkeep.load(tmp_path / "x.safetensors", classes=[Moments, Layer])
    check_equal(tensorkeep.jax.restore(state, tree), tree)


def test_arrays_of_other_libraries_become_what_the_template_is(tmp_path: Path) -> None:
    state = {"w": np.arange(4, dtype=np.float32), "v": jnp.arange(4.0)}
    like = {"w": jnp.zeros(4), "v": np.zeros(4, np.float32)}

    for loaded in (tensorkeep.jax.restore(state, like), tensorkeep.jax.load(saved(state, tmp_path), like=like)):
        check_equal(loaded, {"w": jnp.arange(4.0), "v": np.arange(4, dtype=np.float32)})
        assert loaded["v"].flags.writeable


def test_64_bits_without_jax_having_them(tmp_path: Path) -> None:
    with jax.enable_x64(True):
        path = saved({"w": jnp.asarray([1.5, 2], jnp.float64), "c": jnp.asarray([1j], jnp.complex128)}, tmp_path)
        assert tensorkeep.jax.load(path)["c"].dtype == jnp.complex128

    with pytest.raises(DtypeError, match="jax_enable_x64"):
        tensorkeep.jax.load(path)
    loaded = tensorkeep.jax.load(path, like={"w": np.zeros(2)}, strict=False)
    assert loaded["w"].tolist() == [1.5, 2]


def test_what_is_no_data_is_refused_by_its_place(tmp_path: Path) -> None:
    deleted = jnp.ones(3)
    deleted.delete()
    same = Moments(ONE, {0: ONE, "0": ONE})
    endless: list[Any] = []
    endless.append(endless)
    refused: list[tuple[Any, type[Exception], str]] = [
        ({"f": jnp.sin}, StateError, "'f' is not data"),
        ({"a": [deleted]}, StateError, r"'a\.0' is not data.*deleted or donated"),
        (same, StateError, "two keys of 'spread' are the same as text"),
        (Twice(), StateError, "two keys of the value itself"),
        (endless, LimitError, "nested too deep"),
        (reduce(lambda tree, _: [tree], range(5000), ONE), LimitError, "nested too deep"),
    ]
    for tree, error, message in refused:
        with pytest.raises(error, match=message):
            saved(tree, tmp_path)

    def traced(x: Any) -> Any:
        with pytest.raises(StateError, match="'w' is traced"):
            saved({"w": x}, tmp_path)
        return x

    jax.jit(traced)(ONE)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnsupportedError, match=r"tensorkeep\.jax\.load"):
        tensorkeep.jax.restore("x.safetensors", like={})


class Twice:
    """A pytree of two children that have one name."""


register_pytree_with_keys(
    Twice, lambda _: (((GetAttrKey("a"), ONE), (GetAttrKey("a"), ONE)), None), lambda _, parts: Twice()
)


def test_the_way_to_make_a_dtype_weak_exists_in_this_version_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    assert weak._convert is not None
    monkeypatch.setattr(weak, "_convert", None)

    assert weak.made_weak(jnp.float32(1.5)).weak_type
    assert not weak.made_weak(ONE).weak_type


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"impl","rbg"', b'"impl","abc"', "unknown algorithm"),
        (b'"impl","rbg"', b'"impl",1234567', "unknown algorithm"),
        (b'"impl","rbg"', b'"imql","rbg"', "unknown algorithm"),
        (b'"jax","key"', b'"jax","kez"', "no objects of kind 'kez'"),
        (b'"weak":true', b'"weak":1234', "unknown member"),
        (b'{"weak":true}', b'{"weal":true}', "unknown member"),
    ],
)
def test_a_file_that_lies_is_refused(old: bytes, new: bytes, message: str, tmp_path: Path) -> None:
    tree = {"a": {"key": jax.random.key(0, impl="rbg"), "w": jnp.asarray(1.0)}}
    tensorkeep.save(tree, tmp_path / "x.safetensors", digests=False)
    content = (tmp_path / "x.safetensors").read_bytes()
    quoted = (old.replace(b'"', b'\\"'), new.replace(b'"', b'\\"'))
    assert old in content or quoted[0] in content

    broken = content.replace(old, new).replace(*quoted)

    with pytest.raises((FormatError, UnsupportedError), match=message):
        tensorkeep.jax.load(broken, like=tree)
    with pytest.raises((FormatError, UnsupportedError), match=message):
        tensorkeep.jax.load(broken)


def test_a_state_that_repeats_itself_without_end_is_not_walked(tmp_path: Path) -> None:
    state: Any = [ONE]
    for _ in range(150):
        state = [state, state]
    tensorkeep.save({"a": state, "w": ONE}, tmp_path / "x.safetensors")

    with pytest.raises(StateDictMismatchError) as caught:
        tensorkeep.jax.load(tmp_path / "x.safetensors", like={"w": ONE})
    assert len(caught.value.unexpected) == 1
    with pytest.raises(UnsupportedError, match="one container in two places"):
        tensorkeep.jax.load(tmp_path / "x.safetensors", shardings=jax.devices()[0])
    check_equal(tensorkeep.jax.load(tmp_path / "x.safetensors", like={"w": ONE}, strict=False), {"w": ONE})


def test_a_large_tree(tmp_path: Path) -> None:
    tree = {"layers": [{"w": jnp.asarray([place]), "b": np.float32(place)} for place in range(2_000)]}

    check_equal(tensorkeep.jax.load(saved(tree, tmp_path), like=tree), tree)


def test_the_module_is_documented() -> None:
    assert tensorkeep.jax is tensorkeep.__getattr__("jax")
    assert all(inspect.getdoc(getattr(tensorkeep.jax, name)) for name in tensorkeep.jax.__all__)
