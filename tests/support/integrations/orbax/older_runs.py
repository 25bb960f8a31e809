"""Steps with items of all kinds, metrics and metadata that orbax saved, read by a program that changed its import."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import numpy as np

from tests.support.integrations.orbax.manager_runs import ORBAX, OURS
from tests.support.jax.meshes.mesh_saves import said_of


def options(ocp: Any) -> Any:
    return ocp.CheckpointManagerOptions(
        best_fn=lambda metrics: metrics["loss"],
        best_mode="min",
        enable_async_checkpointing=False,
        async_options=ocp.AsyncOptions(timeout_secs=60),
    )


def save_all_kinds(module: str, directory: str) -> None:
    """Save three steps, the second of which is the best."""
    ocp = importlib.import_module(module)
    with ocp.CheckpointManager(directory, options=options(ocp), metadata={"run": "a"}) as manager:
        for step, loss in enumerate([3.0, 1.0, 2.0]):
            args = ocp.args.Composite(
                state=ocp.args.StandardSave({"w": np.arange(3.0, dtype=np.float32) + step, "n": step}),
                config=ocp.args.JsonSave({"lr": 0.5, "layers": [1, step]}),
                array=ocp.args.ArraySave(jax.numpy.full(2, step)),
                key=ocp.args.JaxRandomKeySave(jax.random.key(step)),
                old_key=ocp.args.JaxRandomKeySave(jax.random.PRNGKey(step)),
                numpy_key=ocp.args.NumpyRandomKeySave(np.random.RandomState(step).get_state()),
            )
            manager.save(step, args=args, metrics={"loss": loss}, custom_metadata={"epoch": step})


def read_all_kinds(module: str, directory: str, engine: str | None = None) -> dict[str, Any]:
    """Restore and ask for everything; return what is said, in plain data."""
    ocp = importlib.import_module(module)
    arguments: dict[str, Any] = {"engine": engine} if module == OURS else {}
    manager = ocp.CheckpointManager(directory, options=options(ocp), **arguments)
    args = ocp.args
    asked = args.Composite(
        state=args.StandardRestore({"w": jax.ShapeDtypeStruct((3,), "float32"), "n": 0}),
        config=args.JsonRestore(),
        array=args.ArrayRestore(),
        key=args.JaxRandomKeyRestore(),
        old_key=args.JaxRandomKeyRestore(),
        numpy_key=args.NumpyRandomKeyRestore(),
    )
    found = manager.restore(1, args=asked)
    state = found.numpy_key
    drawn = np.random.RandomState()
    drawn.set_state(state)
    return {
        "steps": list(manager.all_steps()),
        "best": manager.best_step(),
        "metrics": manager.metrics(1),
        "of step": (manager.metadata(1).custom_metadata, manager.metadata(1).metrics),
        "of run": manager.metadata().custom_metadata,
        "w": np.asarray(found.state["w"]).tolist(),
        "n": int(found.state["n"]),
        "config": found.config,
        "array": np.asarray(found.array).tolist(),
        "key": (str(found.key.dtype), jax.random.key_data(found.key).tolist()),
        "old key": (str(found.old_key.dtype), np.asarray(found.old_key).tolist()),
        "drawn": float(drawn.rand()),
    }


def read_others(directory: str) -> dict[str, Any]:
    """Restore without arguments and with wrong ones, and train on until a newer step is the best."""
    ours: Any = importlib.import_module(OURS)
    args = ours.args
    said: dict[str, Any] = {}
    with ours.CheckpointManager(directory, options=options(ours)) as manager:
        everything = manager.restore(2)
        said["all"] = (sorted(everything), everything.config, everything.array.tolist(), everything.key.dtype.name)
        said["described"] = (sorted(manager.item_metadata(2)), str(manager.item_metadata(2).state["w"]))
        said["nameless"] = said_of(lambda: manager.restore(1, args=args.StandardRestore()))
        said["unknown"] = said_of(lambda: manager.restore(1, args=args.Composite(x=args.JsonRestore())))
        wrong = args.Composite(state=args.StandardRestore({"w": np.zeros(4, np.float32), "n": 0}))
        said["unfit"] = said_of(lambda: manager.restore(1, args=wrong))
        state = args.Composite(state=args.StandardSave({"w": np.zeros(3)}))
        manager.save(3, args=state, metrics={"loss": 1.5})
        said["best of both"] = manager.best_step()
        manager.save(4, args=state, metrics={"loss": 0.5})
        said["best in the end"] = manager.best_step()
        said["run"] = manager.metadata().custom_metadata
        said["steps"] = manager.all_steps()
    return said


def read_in_bucket(directory: str, url: str) -> dict[str, Any]:
    """Copy a run to a bucket, and read it there."""
    import fsspec

    fsspec.filesystem(url.partition("://")[0]).put(directory, url, recursive=True)
    return read_all_kinds(OURS, url)


def by_default(directory: str) -> dict[str, Any]:
    """Save one item without a name with orbax; restore it as `default`, and with a template that does not fit."""
    theirs, ours = importlib.import_module(ORBAX), importlib.import_module(OURS)
    with theirs.CheckpointManager(directory) as manager:
        manager.save(1, args=theirs.args.StandardSave({"w": jax.numpy.ones(2)}))
    manager = ours.CheckpointManager(directory)
    found = manager.restore(1, args=ours.args.Composite(default=ours.args.StandardRestore()))
    unfit = {"w": jax.numpy.ones(3)}
    state = {"w": jax.numpy.ones(2), "key": jax.random.key(0), "n": 3}
    return {
        "default": found.default["w"].tolist(),
        "unfit": said_of(lambda: manager.restore(1, args=ours.args.StandardRestore(unfit))),
        "missing": said_of(lambda: ours.type_handlers),
        "described": str(jax.tree.map(ours.utils.to_shape_dtype_struct, state)),
    }
