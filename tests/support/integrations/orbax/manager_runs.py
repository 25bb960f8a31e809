"""Programs written for orbax's CheckpointManager, run with its module or with ours in its place."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

from tests.support.meshes.mesh_saves import mesh_of, spread

OURS = "tensorkeep.integrations.orbax"
ORBAX = "orbax.checkpoint"


def state_of(number: int, shape: tuple[int, int]) -> dict[str, Any]:
    mesh = mesh_of(*shape)
    kernel = np.arange(8 * 8, dtype=np.float32).reshape(8, 8) + number
    return {
        "params": {"kernel": spread(kernel, mesh, P("x", "y")), "bias": spread(kernel[0], mesh, P())},
        "step": spread(np.int32(number), mesh, P()),
    }


def abstract(state: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)


def equal(one: Any, other: Any) -> bool:
    def same(a: Any, b: Any) -> bool:
        shards = zip(a.addressable_shards, b.addressable_shards, strict=True)
        return a.sharding == b.sharding and all(np.array_equal(x.data, y.data) for x, y in shards)

    return all(jax.tree.leaves(jax.tree.map(same, one, other)))


def train(module: str, directory: str, shape: tuple[int, int], asynchronous: bool) -> dict[str, Any]:
    """Save ten steps, keep three; return what the manager says."""
    ocp = importlib.import_module(module)
    options = ocp.CheckpointManagerOptions(
        max_to_keep=3, save_interval_steps=2, enable_async_checkpointing=asynchronous
    )
    said: dict[str, Any] = {"saved": []}
    with ocp.CheckpointManager(directory, options=options) as manager:
        said["at first"] = (manager.latest_step(), list(manager.all_steps()))
        for step in range(1, 11):
            said["saved"].append(manager.save(step, args=ocp.args.StandardSave(state_of(step, shape))))
        manager.wait_until_finished()
        said["kept"] = (
            manager.latest_step(),
            sorted(manager.all_steps()),
            manager.should_save(11),
            manager.should_save(12),
        )
        said["forced"] = manager.save(11, args=ocp.args.StandardSave(state_of(11, shape)), force=True)
    with ocp.CheckpointManager(directory, options=options) as manager:
        said["again"] = (manager.latest_step(), sorted(manager.all_steps()))
        other = state_of(0, shape[::-1])
        restored = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(abstract(other)))
        said["restored"] = equal(restored, state_of(11, shape[::-1]))
    return said


def best(module: str, directory: str) -> dict[str, Any]:
    """Save steps with metrics and several items; return what the manager says."""
    ocp = importlib.import_module(module)
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, best_fn=lambda metrics: metrics["loss"], best_mode="min", enable_async_checkpointing=False
    )
    said: dict[str, Any] = {}
    with ocp.CheckpointManager(directory, options=options) as manager:
        for step, loss in enumerate([5.0, 1.0, 4.0, 2.0]):
            args = ocp.args.Composite(
                state=ocp.args.StandardSave(state_of(step, (1, 2))),
                data=ocp.args.JsonSave({"epoch": step, "seen": [1, 2]}),
            )
            manager.save(step, args=args, metrics={"loss": loss})
        said["best"] = manager.best_step()
        said["latest"] = manager.latest_step()
        said["steps"] = sorted(manager.all_steps())
        said["loss"] = manager.metrics(1)["loss"]
        like = abstract(state_of(0, (2, 1)))
        found = manager.restore(
            1, args=ocp.args.Composite(state=ocp.args.StandardRestore(like), data=ocp.args.JsonRestore())
        )
        said["state"] = equal(found.state, state_of(1, (2, 1)))
        said["data"] = found["data"]
        only = manager.restore(3, args=ocp.args.Composite(data=ocp.args.JsonRestore()))
        said["only"] = (list(only.keys()), only.data)
    return said


def coming_from(directory: str) -> dict[str, Any]:
    """Save steps with orbax and its own options and arguments, and train on with our manager."""
    import orbax.checkpoint as ocp

    ours = importlib.import_module(OURS)
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    with ocp.CheckpointManager(directory, options=options) as manager:
        for step in (1, 2, 3):
            manager.save(step, args=ocp.args.StandardSave(state_of(step, (1, 2))))
    like = abstract(state_of(0, (1, 2)))
    with ours.CheckpointManager(directory, options=options, engine="tensorstore") as manager:
        latest = manager.latest_step()
        first = manager.restore(latest, args=ocp.args.StandardRestore(like))
        saved = [manager.save(step, args=ocp.args.StandardSave(state_of(step, (1, 2)))) for step in (3, 4, 5, 6)]
        restored = manager.restore(args=ocp.args.PyTreeRestore(like, restore_args=_restore_args(like)))
        return {
            "latest": latest,
            "first": equal(first, state_of(3, (1, 2))),
            "saved": saved,
            "steps": manager.all_steps(),
            "restored": equal(restored, state_of(6, (1, 2))),
            "shapes": str(manager.item_metadata(6)["params"]["kernel"]),
            "as saved": float(manager.restore(6)["params"]["kernel"][0, 1]),
        }


def _restore_args(like: Any) -> Any:
    import orbax.checkpoint as ocp

    return ocp.checkpoint_utils.construct_restore_args(like)


def refused(directory: str) -> list[str]:
    """Return what is said of what cannot be done."""
    import orbax.checkpoint as ocp

    ours = importlib.import_module(OURS)
    said: list[str] = []

    def attempt(call: Any) -> None:
        try:
            call()
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")

    manager = ours.CheckpointManager(
        directory, options=ours.CheckpointManagerOptions(enable_async_checkpointing=False)
    )
    attempt(manager.restore)
    state = {"w": jax.numpy.ones(3)}
    manager.save(1, args=ours.args.StandardSave(state))
    attempt(lambda: manager.save(1, args=ours.args.StandardSave(state), force=True))
    attempt(lambda: manager.save(2, args=ocp.args.ArraySave(state["w"])))
    attempt(lambda: manager.restore(1, args=ours.args.Composite(state=ours.args.StandardRestore())))
    attempt(lambda: manager.restore(1, args=ours.args.StandardRestore({"w": jax.ShapeDtypeStruct((4,), "float32")})))
    attempt(lambda: manager.restore(7))
    attempt(lambda: ours.CheckpointManager(directory, options=ocp.CheckpointManagerOptions(todelete_subdir="old")))
    manager.delete(1)
    said.append(str(manager.latest_step()))
    return said
