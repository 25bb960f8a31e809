"""What the processes of a jax job do in tests: states over all of them, saved and loaded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
import safetensors
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import tensorkeep
import tensorkeep.jax
from tensorkeep.checkpoint import SaveOptions
from tensorkeep.jax.meshes import TogetherSave, load_shards, meet, target_directory
from tensorkeep.tensors import prepare

WHOLE: dict[str, np.ndarray[Any, Any]] = {
    "rows": np.arange(16 * 6, dtype=np.float32).reshape(16, 6),
    "columns": np.arange(5 * 16, dtype=np.float32).reshape(5, 16).astype(ml_dtypes.bfloat16),
    "tiles": np.arange(8 * 8 * 3, dtype=np.int32).reshape(8, 8, 3),
    "replicated": np.arange(7, dtype=np.float16),
    "inner": np.arange(3 * 16 * 4, dtype=np.uint8).reshape(3, 16, 4),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.float32),
}
"""Name to array, as the files have it."""

SPECS: dict[str, P] = {
    "rows": P(("x", "y")),
    "columns": P(None, "y"),
    "tiles": P("x", "y"),
    "replicated": P(),
    "inner": P(None, ("x", "y"), None),
    "scalar": P(),
    "empty": P(),
}
MIB = 2**20


def mesh_of(*shape: int) -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(shape), ("x", "y"))


def spread(whole: np.ndarray[Any, Any], mesh: Mesh, spec: P) -> jax.Array:
    return jax.make_array_from_callback(whole.shape, NamedSharding(mesh, spec), lambda index: whole[index])


def arrays_on(mesh: Mesh, number: int = 0) -> dict[str, jax.Array]:
    return {name: spread(whole + np.asarray(number, whole.dtype), mesh, SPECS[name]) for name, whole in WHOLE.items()}


def state_on(mesh: Mesh, number: int = 0) -> dict[str, Any]:
    """Return a state with values of each process between its arrays."""
    return {
        "params": arrays_on(mesh, number),
        "step": number,
        "host": np.arange(4) + number,
        "local": jax.numpy.full(3, number, "float32"),
        "name": "run",
    }


def options(**given: Any) -> SaveOptions:
    return SaveOptions(**{"max_shard_nbytes": 5 * 10**9, "durable": False, **given})


def save_together(state: Any, path: Any, options: SaveOptions) -> None:
    with meet() as meeting:
        together = TogetherSave(meeting, prepare(state), target_directory(path), options)
    together.run()


def save_state(path: Any, shape: tuple[int, int], number: int = 0, max_shard_nbytes: int = 5 * 10**9) -> None:
    state = state_on(mesh_of(*shape), number)
    save_together(state, path, options(max_shard_nbytes=max_shard_nbytes))


def save_alone(path: Any, shape: tuple[int, int], number: int) -> None:
    """Save arrays in several shards, all of them here, as any other state."""
    tensorkeep.save_async(state_on(mesh_of(*shape), number), path).result(60)
    first = Path(path, "model.safetensors").read_bytes()
    tensorkeep.save_checkpoint(state_on(mesh_of(*shape), number), path)
    assert Path(path, "model.safetensors").read_bytes() == first


def load_state(path: Any, shape: tuple[int, int], number: int, backend: str = "auto") -> str:
    """Load onto a mesh of the given shape, and compare this process's shards with what was saved."""
    mesh = mesh_of(*shape)
    with tensorkeep.open(path, backend=backend) as opened:
        names = {name: f"params.{name}" for name in WHOLE}
        shardings = {full: NamedSharding(mesh, SPECS[name]) for name, full in names.items()}
        loaded = load_shards({full: opened[full] for full in names.values()}, shardings)
    for name, full in names.items():
        array, whole = loaded[full], WHOLE[name] + np.asarray(number, WHOLE[name].dtype)
        assert array.sharding == shardings[full]
        assert array.shape == whole.shape
        assert array.dtype == whole.dtype
        for shard in array.addressable_shards:
            assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(whole[shard.index]).tobytes(), name
    return "equal"


def save_tied(path: Any, shape: tuple[int, int]) -> list[str]:
    """Save one array under two names, and an equal one; return the names that the file has."""
    rows = arrays_on(mesh_of(*shape))["rows"]
    tensorkeep.jax.save({"embed": rows, "head": rows, "equal": rows + 0}, path, durable=False)
    sharding = dict.fromkeys(("embed", "head", "equal"), rows.sharding)
    loaded = tensorkeep.jax.load(path, shardings=sharding)
    assert all(bool(jax.numpy.all(array == rows)) for array in loaded.values())
    with safetensors.safe_open(Path(path, "model.safetensors"), "np") as file:
        return sorted(file.keys())


def save_large(path: Any, shape: tuple[int, int], nbytes: int) -> None:
    """Save two arrays, one cut by rows and one by columns, and a replicated one."""
    n_columns = nbytes // 3 // 4 // 256
    whole = np.arange(256 * n_columns, dtype=np.float32).reshape(256, n_columns)
    mesh = mesh_of(*shape)
    arrays = {
        "rows": spread(whole, mesh, P(("x", "y"), None)),
        "columns": spread(whole, mesh, P(None, ("x", "y"))),
        "replicated": spread(whole, mesh, P()),
    }
    save_together(arrays, path, options(max_shard_nbytes=nbytes // 4))


def bytes_read_by_load(path: Any, shape: tuple[int, int]) -> tuple[int, int]:
    """Load onto a mesh, cut otherwise than it was saved; return the bytes of own shards, and those that were read."""
    mesh = mesh_of(*shape)
    specs = {"rows": P("y", "x"), "columns": P("x", "y"), "replicated": P(None, "x")}
    with tensorkeep.open(path, backend="pread") as opened:
        tensors = dict(opened.items())
        before = _rchar()
        arrays = load_shards(tensors, {name: NamedSharding(mesh, specs[name]) for name in tensors})
        read = _rchar() - before
    own = 0
    for array in arrays.values():
        shards = {str(shard.index): shard.data.nbytes for shard in array.addressable_shards}
        own += sum(shards.values())
    return own, read


def load_rows(url: str, shape: tuple[int, int]) -> int:
    """Load all arrays by rows; return the bytes of own shards."""
    sharding = NamedSharding(mesh_of(*shape), P("x"))
    arrays = tensorkeep.jax.load(url, shardings=sharding)
    whole = np.arange(arrays["rows"].size, dtype=np.float32).reshape(arrays["rows"].shape)
    shards = [shard for array in arrays.values() for shard in array.addressable_shards]
    assert all(np.array_equal(shard.data, whole[shard.index]) for shard in shards)
    return sum(shard.data.nbytes for shard in shards)


def _rchar() -> int:
    line = Path("/proc/self/io").read_text().splitlines()[0]
    return int(line.split()[1])


def save_in_background_twice(path: Any, shape: tuple[int, int]) -> str:
    """Save two states without waiting; the arrays of the first are donated at once."""
    mesh = mesh_of(*shape)
    arrays = arrays_on(mesh, 1)
    first = tensorkeep.jax.save_async({"params": arrays, "step": 1}, path, durable=False)
    changed = jax.jit(lambda tree: jax.tree.map(lambda a: a * 0, tree), donate_argnums=0)(arrays)
    jax.block_until_ready(changed)
    state = {"params": arrays_on(mesh, 2), "step": 2}
    second = tensorkeep.jax.save_async(state, f"{path}-2", durable=False)
    first.result(60)
    second.result(60)
    return "saved"


def save_differing(path: Any, shape: tuple[int, int], what: str) -> str:
    """Save states that differ between processes; return what is said."""
    state = state_on(mesh_of(*shape))
    if what == "tensor":
        state["host"] = np.arange(4) + jax.process_index()
    elif what == "value":
        state["step"] = jax.process_index()
    elif what == "fails" and jax.process_index() == 1:
        state["step"] = object
    try:
        if what == "alone":
            tensorkeep.save_checkpoint(state, f"{path}-{jax.process_index()}")
        else:
            save_together(state, path, options())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "saved"


def save_until_killed(path: Any, shape: tuple[int, int], ready: str, how: str) -> None:
    """Save one state after another: to a path, now or in the background, or as the steps of a store."""
    store = tensorkeep.jax.CheckpointStore(path, durable=False) if how == "store" else None
    Path(f"{ready}-{jax.process_index()}").touch()
    for number in range(2, 1000):
        if store is not None:
            store.save_async(number, state_on(mesh_of(*shape), number))
        elif how == "async":
            tensorkeep.jax.save_async(state_on(mesh_of(*shape), number), path, durable=False)
        else:
            save_state(path, shape, number)


def number_in(path: Any) -> int:
    """Return the number of a saved state, which must be whole."""
    state = tensorkeep.load(path, framework="numpy", ties="copy")
    number = int(state["step"])
    for name, whole in WHOLE.items():
        wanted = whole + np.asarray(number, whole.dtype)
        assert np.asarray(state["params"][name]).tobytes() == wanted.tobytes(), name
    assert tensorkeep.verify(path).is_whole
    return number


class TrainState(NamedTuple):
    """What a training loop has: arrays over all processes, and some that every process has."""

    step: jax.Array
    params: dict[str, jax.Array]
    momentum: dict[str, jax.Array]
    key: jax.Array
    epoch: int


def train_state(mesh: Mesh, number: int) -> TrainState:
    everywhere = NamedSharding(mesh, P())
    key = jax.jit(lambda: jax.random.key(number), out_shardings=everywhere)()
    step = jax.jit(lambda: jax.numpy.int32(number), out_shardings=everywhere)()
    return TrainState(step, arrays_on(mesh, number), arrays_on(mesh, number + 1), key, number)


def abstract_state(mesh: Mesh) -> TrainState:
    """Return the state as shapes, dtypes and shardings, as programs restore it that have not made one yet."""
    return jax.tree.map(
        lambda leaf: (
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
            if isinstance(leaf, jax.Array)
            else leaf
        ),
        train_state(mesh, 0),
    )


def save_tree(path: Any, shape: tuple[int, int], number: int, how: str = "now") -> None:
    state = train_state(mesh_of(*shape), number)
    if how == "now":
        tensorkeep.jax.save(state, path, durable=False)
    else:
        tensorkeep.jax.save_async(state, path, durable=False).result(60)


def load_tree(path: Any, shape: tuple[int, int], number: int) -> str:
    mesh = mesh_of(*shape)
    wanted = train_state(mesh, number)
    for like, shardings in [(abstract_state(mesh), None), (wanted, NamedSharding(mesh, P()))]:
        loaded = tensorkeep.jax.load(path, like=like, shardings=shardings)
        assert loaded.epoch == number
        for one, other in zip(jax.tree.leaves(loaded), jax.tree.leaves(wanted), strict=True):
            if isinstance(one, jax.Array):
                assert one.sharding == (shardings or other.sharding)
                assert bool(jax.numpy.all(one == other))
    return "equal"


def save_and_load_in_bucket(url: str, settings: dict[str, str], shape: tuple[int, int], number: int) -> str:
    os.environ.update(settings)
    save_tree(url, shape, number)
    save_tree(url, shape, number + 1, "in the background")
    return load_tree(url, shape[::-1], number + 1)


def save_steps(path: Any, shape: tuple[int, int], in_background: bool, key: str | None = None) -> list[int]:
    """Save four steps, of which the second is the best; return those that are kept."""
    mesh = mesh_of(*shape)
    store = tensorkeep.jax.CheckpointStore(path, keep_last=2, keep_best=1, monitor="loss", durable=False, encrypt=key)
    for step, loss in enumerate([3.0, 1.0, 2.0, 4.0]):
        if in_background:
            store.save_async(step, train_state(mesh, step), {"loss": loss}, metadata={"by": "test"}).result(60)
        else:
            store.save(step, train_state(mesh, step), {"loss": loss}, metadata={"by": "test"}, timeout_s=60)
    return store.steps()


def restore_steps(path: Any, shape: tuple[int, int], key: str | None = None) -> list[int]:
    """Restore the last, the best and another step onto a mesh; return the epochs that they say."""
    mesh = mesh_of(*shape)
    store = tensorkeep.jax.CheckpointStore(path, encrypt=key)
    epochs = []
    for step in ("latest", "best", 2):
        with warnings.catch_warnings(action="ignore"):
            restored = store.restore(step, like=abstract_state(mesh))
        wanted = train_state(mesh, restored.epoch)
        for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(wanted), strict=True):
            if isinstance(one, jax.Array):
                assert one.sharding == other.sharding
                assert bool(jax.numpy.all(one == other))
        epochs.append(restored.epoch)
    return epochs


def said_of(call: Callable[[], Any]) -> str:
    """Return the error of a call, or what it returned."""
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def only_arrays(number: float) -> dict[str, jax.Array]:
    """Return a state that holds nothing that processes could compare."""
    whole = np.full(16, number, np.float32)
    return {"rows": spread(whole, mesh_of(2, 2), P(("x", "y")))}


def fail_once_in_one_process(path: Any, how: str) -> tuple[list[str], list[str]]:
    """Save three steps in the background; the call for the first fails in process 1, which goes on."""
    store = tensorkeep.jax.CheckpointStore(path, durable=False)
    handles: list[tensorkeep.SaveHandle] = []

    def save(step: int) -> None:
        tree: dict[str, Any] = only_arrays(step)
        metrics: dict[str, Any] = {"loss": 0.5}
        timeout_s = 30.0
        if jax.process_index() == 1 and step == 1:
            tree |= {"step": object()} if how == "tree" else {}
            metrics |= {"loss": "n/a"} if how == "metrics" else {}
            timeout_s = -1.0 if how == "timeout" else timeout_s
        handles.append(store.save_async(step, tree, metrics, timeout_s=timeout_s, max_waiting=3))

    begun = [said_of(partial(save, step)) for step in (1, 2, 3)]
    return begun, [said_of(partial(handle.result, 60)) for handle in handles]


def go_on_after_an_error(path: Any) -> list[str]:
    """Save four steps in the background, and look at no result but the last; the first fails in process 1."""
    store = tensorkeep.jax.CheckpointStore(path, durable=False)
    said: list[str] = []
    for step in (1, 2, 3):
        metrics = {"loss": "n/a" if jax.process_index() == 1 and step == 1 else 0.5}
        said.append(said_of(partial(store.save_async, step, only_arrays(step), metrics)))
    store.save_async(4, only_arrays(4)).result(60)
    return said


def fail_and_save(path: Any, key: str, how: str) -> list[str]:
    """Save to a path, which fails in process 1 before it has anything to say, and then to another."""
    tree: dict[str, Any] = only_arrays(1)
    arguments: dict[str, Any] = {}
    if jax.process_index() == 1:
        tree |= {1: 0, "1": 0} if how == "tree" else {}
        arguments = {"key": {"encrypt": f"{key}-absent"}, "size": {"max_shard_size": "abc"}}.get(how, {})
    said = [said_of(lambda: tensorkeep.jax.save(tree, path, durable=False, timeout_s=30, **arguments))]
    said.append(said_of(lambda: tensorkeep.jax.save(only_arrays(2), f"{path}-2", durable=False, timeout_s=30)))
    return said


def differ_in(path: Path, what: str) -> str:
    """Save with another path, step or argument in process 1."""
    number = jax.process_index()
    state = only_arrays(1)
    if what == "step":
        store = tensorkeep.jax.CheckpointStore(path)
        return said_of(lambda: store.save(10 + number, state, timeout_s=30))
    if what == "counter":  # one process has left a save to the same path out
        counter = spread(np.int32(number), mesh_of(2, 2), P())
        return said_of(lambda: tensorkeep.jax.save({**state, "counter": counter}, path, timeout_s=30))
    if what == "function":
        store = tensorkeep.jax.CheckpointStore(path)
        call = (lambda: store.restore(1, timeout_s=30)) if number else (lambda: store.save(1, state, timeout_s=30))
        return said_of(call)
    arguments: dict[str, Any] = {
        "metadata": {"metadata": {"by": str(number)}},
        "max_shard_size": {"max_shard_size": 1000 + number},
        "align": {"align": (8, 64)[number]},
        "durable": {"durable": bool(number)},
        "order": {"order": ["a*"] if number else None},
    }.get(what, {})
    target = f"{path}{number}" if what == "path" else path
    return said_of(lambda: tensorkeep.jax.save(state, target, timeout_s=30, **arguments))


def save_unequal_floats(path: Any) -> str:
    """Save a replicated array of floats whose last bits differ between processes."""
    scale = spread(np.float32(1) + np.float32(2**-20) * jax.process_index(), mesh_of(2, 2), P())
    return said_of(lambda: tensorkeep.jax.save({"scale": scale}, path, durable=False))


def save_cast(path: Any, dtype: str, cast_to: str) -> str:
    """Save an array over all processes of a dtype that they cannot save, and then as the error says; return that."""
    whole = np.arange(4, dtype=np.float32).repeat(4)
    array = spread(whole, mesh_of(2, 2), P(("x", "y"))).astype(dtype)
    said = said_of(lambda: tensorkeep.jax.save({"w": array}, path, timeout_s=30))
    tensorkeep.jax.save({"w": array.astype(cast_to)}, path, durable=False, timeout_s=30)
    assert tensorkeep.load(path, framework="numpy")["w"].astype(np.float32).tolist() == whole.tolist()
    return said
