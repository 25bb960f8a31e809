"""Files that Flax writes: what is loaded is what Flax restores, bit for bit, from anywhere, alone or in shards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import DtypeError, IntegrityError, SourceMissingError, TensorNotFoundError, UnsafeError
from tensorkeep.kinds import FlatFile
from tensorkeep.kinds.msgpack import MsgpackFile, MsgpackSet
from tests.support.remote.fault_server import FaultServer

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
]

TRAIN = """
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization
from flax.training import train_state


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3))(x)
        x = nn.BatchNorm(use_running_average=True)(x)
        return nn.Dense(3, param_dtype=jnp.bfloat16)(x.reshape(x.shape[0], -1))


net = Net()
variables = net.init(jax.random.key(0), jnp.ones((2, 5, 5, 1)))
optimizer = optax.chain(optax.clip(1.0), optax.adamw(optax.linear_schedule(1e-3, 0, 10)))
state = train_state.TrainState.create(apply_fn=net.apply, params=variables["params"], tx=optimizer)
state = {"state": state, "batch_stats": variables["batch_stats"], "best": np.float32(0.5), "history": (1.5, 2, None)}
open(sys.argv[1], "wb").write(serialization.to_bytes(state))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flax") / "state.msgpack"
    subprocess.run([sys.executable, "-c", TRAIN, path], check=True)
    return path


def restored(content: bytes) -> Any:
    from flax import serialization

    return serialization.msgpack_restore(content)


def assert_same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            assert_same(found[key], wanted[key])
    elif isinstance(wanted, list):
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()
    else:
        assert found == wanted


def test_the_state_of_a_training_is_what_flax_restores(trained: Path) -> None:
    content = trained.read_bytes()

    assert_same(tensorkeep.load(trained), restored(content))
    assert_same(tensorkeep.load(content), restored(content))
    with tensorkeep.open(trained) as opened:
        assert isinstance(opened, MsgpackFile)
        assert opened["state.params.Dense_0.kernel"].dtype == "BF16"
        assert opened.tree["history"] == {"0": 1.5, "1": 2, "2": None}
        assert opened.tree["state"]["opt_state"]["1"]["0"]["count"].shape == ()


def test_a_part_is_loaded(trained: Path) -> None:
    loaded = tensorkeep.load(trained, only=["state.params.*", "history"])

    assert list(loaded) == ["history", "state"] or list(loaded) == ["state", "history"]
    assert list(loaded["state"]) == ["params"]
    with pytest.raises(TensorNotFoundError):
        tensorkeep.load(trained, only="nothing")


def test_torch_gets_its_own_tensors(trained: Path) -> None:
    import torch

    loaded = tensorkeep.load(trained, framework="torch")

    assert loaded["state"]["params"]["Dense_0"]["kernel"].dtype == torch.bfloat16


def test_a_conversion_keeps_the_nested_state(trained: Path, tmp_path: Path) -> None:
    done = tensorkeep.convert(trained, tmp_path / "model.safetensors")

    assert done.has_tree
    assert done.left_out == {}
    wanted = restored(trained.read_bytes())
    wanted["best"] = np.asarray(wanted["best"])  # an array without dimensions
    assert_same(tensorkeep.load(tmp_path / "model.safetensors"), wanted)
    diff = tensorkeep.diff(trained, tmp_path / "model.safetensors")
    assert (diff.only_in_a, diff.only_in_b, diff.changed) == ((), (), ())


def test_scan_finds_only_tensors(trained: Path, tmp_path: Path) -> None:
    assert tensorkeep.scan(trained).verdict == "clean"
    for n in range(1, 20):
        path = tmp_path / f"{n}.msgpack"
        path.write_bytes(msgspec.msgpack.encode({str(key): ext(np.ones(key)) for key in range(n)}))
        assert tensorkeep.scan(path).verdict == "clean"


def ext(array: Any, code: int = 1) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode((array.shape, array.dtype.name, array.tobytes())))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_every_dtype_is_what_flax_restores(dtype: str, backend: Any, tmp_path: Path) -> None:
    from flax import serialization

    values = np.random.default_rng(0).integers(0, 2, 24).reshape(2, 3, 4).astype(np.dtype(dtype))
    content = serialization.msgpack_serialize({"w": values, "scalar": values[0, 0, 0], "none": values[:0]})
    (tmp_path / "a.msgpack").write_bytes(content)

    with tensorkeep.open(tmp_path / "a.msgpack", backend=backend) as opened:
        assert opened["w"][1:, ::2, -1].tobytes() == values[1:, ::2, -1].tobytes()
    assert_same(tensorkeep.load(tmp_path / "a.msgpack", backend=backend), restored(content))
    tensorkeep.convert(tmp_path / "a.msgpack", tmp_path / "b.safetensors")
    assert tensorkeep.load(tmp_path / "b.safetensors")["w"].tobytes() == values.tobytes()


def test_other_dtypes_can_be_named(tmp_path: Path) -> None:
    from flax import serialization

    values = np.arange(6).astype(ml_dtypes.int4).reshape(2, 3)
    path = tmp_path / "a.msgpack"
    path.write_bytes(serialization.msgpack_serialize({"w": values, "b": np.ones(2)}))

    with tensorkeep.open(path) as opened:
        assert isinstance(opened, FlatFile)
        assert str(opened.unknowns["w"]) == "an array of 'int4', 1 bytes per element"
        assert list(opened) == ["b"]
        assert opened.load_tree()["w"] is opened.unknowns["w"]
        named = opened.with_dtypes({"w": "int8"})
        assert np.array_equal(named.load_tree()["w"], values.astype(np.int8))
        with pytest.raises(DtypeError):
            opened.with_dtypes({"w": "F16"})
    with pytest.raises(UnsafeError, match="int4"):
        tensorkeep.convert(path, tmp_path / "b.safetensors")
    assert tensorkeep.convert(path, tmp_path / "b.safetensors", drop_unknown=True).left_out == {
        "w": "an array of 'int4', 1 bytes per element"
    }


def test_a_scalar_of_a_dtype_that_is_not_read_stays_unknown(tmp_path: Path) -> None:
    from flax import serialization

    path = tmp_path / "a.msgpack"
    path.write_bytes(serialization.msgpack_serialize({"narrow": ml_dtypes.int4(3), "usual": np.float32(2)}))

    loaded = tensorkeep.load(path)
    assert "int4" in str(loaded["narrow"])
    assert (loaded["usual"], type(loaded["usual"])) == (2, np.float32)


def test_elements_that_do_not_fill_the_shape_are_refused() -> None:
    for dtype in ("float32", "int4", "no such"):
        content = msgspec.msgpack.encode({
            "w": msgspec.msgpack.Ext(1, msgspec.msgpack.encode(((2, 3), dtype, bytes(23))))
        })
        with pytest.raises(tensorkeep.errors.FormatError, match="`w`"):
            tensorkeep.open(content)


def test_arrays_in_chunks_are_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flax import serialization

    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 1000)
    values = np.arange(3_000, dtype=np.int16).reshape(30, 100)
    content = serialization.msgpack_serialize({"big": values, "small": values[0]})
    assert b"__msgpack_chunked_array__" in content
    path = tmp_path / "a.msgpack"
    path.write_bytes(content)

    for target in (path, content):
        with tensorkeep.open(target) as opened:
            assert list(opened) == ["big", "small"]
            assert np.array_equal(opened["big"][3:20, 5:60], values[3:20, 5:60])
        assert_same(tensorkeep.load(target), restored(content))
    tensorkeep.convert(path, tmp_path / "b.safetensors")
    assert np.array_equal(tensorkeep.load(tmp_path / "b.safetensors")["big"], values)


def save_shards(directory: Path, shards: dict[str, Any], weight_map: dict[str, str]) -> Path:
    from flax import serialization

    for name, value in shards.items():
        (directory / name).write_bytes(serialization.msgpack_serialize(value))
    index = directory / "flax_model.msgpack.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return index


A, B = "flax_model-00001-of-00002.msgpack", "flax_model-00002-of-00002.msgpack"
SHARDS: dict[str, Any] = {
    A: {"model": {"embed": {"kernel": np.ones((3, 4), np.float32)}}},
    B: {"model": {"head": {"kernel": np.zeros(5, np.float16)}}},
}
MAP = {"model/embed/kernel": A, "model/head/kernel": B}


def test_shards_are_one_state(tmp_path: Path) -> None:
    index = save_shards(tmp_path, SHARDS, MAP)
    wanted = {"model": SHARDS[A]["model"] | SHARDS[B]["model"]}

    for path in (index, tmp_path):
        with tensorkeep.open(path) as opened:
            assert isinstance(opened, MsgpackSet)
            assert sorted(opened) == ["model.embed.kernel", "model.head.kernel"]
            assert opened.shard_of("model.head.kernel") == B
        assert_same(tensorkeep.load(path), wanted)
    assert_same(tensorkeep.load(index, only="*.head.*"), {"model": SHARDS[B]["model"]})
    tensorkeep.convert(index, tmp_path / "converted")
    assert_same(tensorkeep.load(tmp_path / "converted"), wanted)


@pytest.mark.parametrize(
    ("shards", "weight_map", "fault"),
    [
        (SHARDS, {"model/embed/kernel": B, "model/head/kernel": A}, "not in"),
        (SHARDS, MAP | {"model/other": B}, "is in no shard"),
        ({A: SHARDS[A], B: {**SHARDS[B], **SHARDS[A]}}, MAP, "is in"),
    ],
)
def test_an_index_that_disagrees_with_its_shards_is_refused(
    shards: Any, weight_map: Any, fault: str, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=fault):
        tensorkeep.open(save_shards(tmp_path, shards, weight_map))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    index = save_shards(tmp_path, SHARDS, MAP)
    (tmp_path / B).unlink()

    with pytest.raises(SourceMissingError, match=B):
        tensorkeep.open(index)


def test_the_file_in_a_directory_is_found_unless_torch_has_one_there(tmp_path: Path, trained: Path) -> None:
    (tmp_path / "flax_model.msgpack").write_bytes(trained.read_bytes())
    (tmp_path / "config.json").write_text("{}")

    with tensorkeep.open(tmp_path) as opened:
        assert isinstance(opened, MsgpackFile)
    tensorkeep.save({"a": np.ones(1)}, tmp_path / "model.safetensors")
    with tensorkeep.open(tmp_path) as opened:
        assert list(opened) == ["a"]


def test_a_checkpoint_without_a_suffix_is_recognized(tmp_path: Path, trained: Path) -> None:
    path = tmp_path / "checkpoint_100"
    path.write_bytes(trained.read_bytes())

    with tensorkeep.open(path) as opened:
        assert isinstance(opened, MsgpackFile)


def test_on_a_server_only_what_is_needed_is_read() -> None:
    content = msgspec.msgpack.encode({
        **{f"large{n}": ext(np.full(2**18, n, np.float32)) for n in range(8)},
        **{f"small{n}": ext(np.full(16, n, np.int64)) for n in range(2_000)},
    })
    with FaultServer({"a.msgpack": content}) as server, tensorkeep.open(server.url + "a.msgpack") as opened:
        assert len(opened) == 2_008
        assert len(server.requests) <= 14
        before = len(server.requests)
        assert np.array_equal(opened["large5"][1000:1010], np.full(10, 5))
        assert len(server.requests) == before + 1
        assert sum(asked.nbytes for asked in server.requests) < 2**20


def test_shards_and_single_files_are_fetched(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    save_shards(tmp_path / "there", SHARDS, MAP)
    files = {path.name: path.read_bytes() for path in (tmp_path / "there").iterdir()}
    files["single.msgpack"] = files[A]
    with FaultServer(files) as server:
        tensorkeep.fetch(server.url + "flax_model.msgpack.index.json", tmp_path / "set")
        tensorkeep.fetch(server.url + "single.msgpack", tmp_path / "one")

    assert sorted(tensorkeep.open(tmp_path / "set")) == ["model.embed.kernel", "model.head.kernel"]
    assert {path.name for path in (tmp_path / "one").iterdir()} >= {"single.msgpack"}
