"""Programs written for orbax's CheckpointManager, run with its module or with ours in its place."""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from tests.support.jax.meshes.mesh_saves import mesh_of, said_of, spread

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


def described(module: str, directory: str) -> dict[str, Any]:
    """Save leaves of many kinds; return how the manager describes them."""
    ocp = importlib.import_module(module)
    state: dict[str, Any] = {
        "nested": [{"bf16": jnp.ones((2, 3), jnp.bfloat16)}, (np.arange(3, dtype=np.int8),)],
        "scalar": np.float32(2),
        "numbers": {"int": 3, "float": 2.5, "bool": True},
        "none": None,
        "empty": {},
    }
    with ocp.CheckpointManager(directory) as manager:
        manager.save(1, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        found = manager.item_metadata(1)
        leaves = jax.tree_util.tree_leaves_with_path(found)
        doubled = jax.tree.map(lambda leaf: leaf.shape * 2, found)
        return {
            "leaves": [(jax.tree_util.keystr(path), leaf.shape, str(leaf.dtype)) for path, leaf in leaves],
            "top": (sorted(found), sorted(found.keys()), len(found), "none" in found, found.get("missing", 5)),
            "inner": (found["nested"][0]["bf16"].shape, found.tree["none"], found.custom_metadata),
            "mapped": (type(doubled) is type(found), doubled["nested"][0]["bf16"]),
        }


def restored_as_described(directory: str) -> dict[str, Any]:
    """Save what orbax describes as other arrays; return our descriptions, and what is restored with these."""
    ours = importlib.import_module(OURS)
    state = {"keys": jax.random.split(jax.random.key(7), 2), "int4": jnp.ones((2, 3), jnp.int4), "loss": 2.5}
    with ours.CheckpointManager(directory) as manager:
        manager.save(1, args=ours.args.StandardSave(state))
        found = manager.item_metadata(1)
        restored = manager.restore(1, args=ours.args.StandardRestore(found))
        return {
            "leaves": {name: (leaf.shape, str(leaf.dtype)) for name, leaf in found.items()},
            "keys": jnp.array_equal(jax.random.key_data(restored["keys"]), jax.random.key_data(state["keys"])).item(),
            "int4": (str(restored["int4"].dtype), restored["int4"].tolist()),
            "loss": restored["loss"],
        }


def restored_as_saved(module: str, directory: str, shape: tuple[int, int]) -> dict[str, Any]:
    """Save arrays over devices, and restore them without a template and as described; return where they are."""
    ocp = importlib.import_module(module)
    state = state_of(1, shape)
    make_keys = jax.jit(lambda: jax.random.split(jax.random.key(7), 2), out_shardings=state["step"].sharding)
    state["keys"] = make_keys()
    said: dict[str, Any] = {}
    with ocp.CheckpointManager(directory) as manager:
        manager.save(1, args=ocp.args.StandardSave(state))
    with ocp.CheckpointManager(directory + "-items") as manager:
        manager.save(1, args=ocp.args.Composite(state=ocp.args.StandardSave(state), data=ocp.args.JsonSave({"a": 1})))
    handlers = {"item_handlers": ocp.StandardCheckpointHandler()}
    with (
        ocp.CheckpointManager(directory, **handlers) as manager,
        ocp.CheckpointManager(directory + "-items") as of_items,
    ):
        described = jax.tree.map(ocp.utils.to_shape_dtype_struct, manager.item_metadata(1)["params"])
        like = {"params": described} | {name: state[name] for name in ("step", "keys")}
        found = {
            "nothing": manager.restore(1, args=ocp.args.StandardRestore()),
            "description": manager.restore(1, args=ocp.args.StandardRestore(like)),
            "item": of_items.restore(1, args=ocp.args.Composite(state=ocp.args.StandardRestore())).state,
        }
        for name, restored in found.items():
            arrays = {**restored["params"], "step": restored["step"]}
            said[name] = equal(arrays, {**state["params"], "step": state["step"]})
            said[f"keys of {name}"] = restored["keys"].sharding == state["keys"].sharding
    return said


def restored_elsewhere(directory: str) -> list[int]:
    """Restore a step of another job without a template; return the devices of the arrays."""
    with importlib.import_module(OURS).CheckpointManager(directory) as manager:
        restored = manager.restore(1)
        assert manager.item_metadata(1)["params"]["kernel"].sharding is None
    return sorted({device.id for array in jax.tree.leaves(restored) for device in array.devices()})


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
            "shape": manager.item_metadata(6)["params"]["kernel"].shape,
            "as saved": float(manager.restore(6)["params"]["kernel"][0, 1]),
        }


def named_by_orbax(directory: str, names: dict[str, Any]) -> dict[str, Any]:
    """Save a step with orbax under names of its options, and restore it with our manager."""
    import orbax.checkpoint as ocp

    ours = importlib.import_module(OURS)
    options = ocp.CheckpointManagerOptions(enable_async_checkpointing=False, **names)
    with ocp.CheckpointManager(directory, options=options) as manager:
        manager.save(7, args=ocp.args.StandardSave(state_of(7, (1, 2))))
    with ours.CheckpointManager(directory, options=options, engine="tensorstore") as manager:
        restored = manager.restore(7, args=ocp.args.StandardRestore(abstract(state_of(0, (1, 2)))))
        return {"latest": manager.latest_step(), "restored": equal(restored, state_of(7, (1, 2)))}


def _restore_args(like: Any) -> Any:
    import orbax.checkpoint as ocp

    return ocp.checkpoint_utils.construct_restore_args(like)


def arguments(directory: str) -> dict[str, Any]:
    """Use every argument that programs written for orbax pass; return what comes of them."""
    from pathlib import Path

    ours: Any = importlib.import_module(OURS)
    options = ours.CheckpointManagerOptions(
        max_to_keep=3, create=True, step_prefix="at", cleanup_tmp_directories=True, enable_async_checkpointing=False
    )
    state = state_of(1, (1, 2))
    said: dict[str, Any] = {}
    handlers = {"state": ours.StandardCheckpointHandler(), "data": ours.JsonCheckpointHandler()}
    with ours.CheckpointManager(
        directory, None, options, metadata={"run": 7}, item_handlers=handlers, logger=None
    ) as manager:
        said["directory"] = (manager.directory / "x") == Path(directory).resolve() / "x"
        args = ours.args.Composite(
            state=ours.args.StandardSave(state, save_args=jax.tree.map(lambda _: ours.SaveArgs(), state)),
            data=ours.args.JsonSave({"epoch": 1}),
        )
        manager.save(1, args=args, metrics={"loss": 0.5}, custom_metadata={"by": "me"})
        of_step = manager.metadata(1)
        said["step"] = (of_step.custom_metadata, of_step.metrics, of_step.item_metadata.state["step"].dtype.name)
        said["run"] = manager.metadata().custom_metadata
    like = abstract(state_of(0, (2, 1)))
    with ours.CheckpointManager(directory) as manager:
        said["run later"] = manager.metadata().custom_metadata
        restore_args = ours.checkpoint_utils.construct_restore_args(like)
        asked = ours.args.Composite(state=ours.args.PyTreeRestore(like, restore_args=restore_args))
        said["with arguments"] = equal(manager.restore(1, args=asked).state, state_of(1, (2, 1)))
        elsewhere = ours.CheckpointManager(directory + "-other").restore(1, directory=directory, args=asked)
        said["elsewhere"] = equal(elsewhere.state, state_of(1, (2, 1)))
        leaves = {
            "params": {"kernel": ours.RestoreArgs(np.ndarray), "bias": ours.RestoreArgs(dtype=jax.numpy.bfloat16)},
            "step": ours.RestoreArgs(int),
        }
        found = manager.restore(1, args=ours.args.Composite(state=ours.args.PyTreeRestore(restore_args=leaves))).state
        said["leaves"] = (type(found["params"]["kernel"]), str(found["params"]["bias"].dtype), found["step"])
        part = ours.args.PyTreeRestore({"step": like["step"]}, transforms={})
        said["part"] = list(manager.restore(1, args=ours.args.Composite(state=part)).state)
    return said


def items(module: str, directory: str) -> dict[str, Any]:
    """Save and restore as programs did before there were arguments."""
    ocp = importlib.import_module(module)
    state = state_of(1, (1, 2))
    save_args = jax.tree.map(lambda _: ocp.SaveArgs(aggregate=True), state)
    said: dict[str, Any] = {}
    options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True)
    one = ocp.CheckpointManager(directory + "/one", ocp.PyTreeCheckpointer(), options)
    said["saved"] = one.save(1, state, save_kwargs={"save_args": save_args})
    one.wait_until_finished()
    restore_args = ocp.checkpoint_utils.construct_restore_args(abstract(state))
    found = one.restore(1, items=abstract(state), restore_kwargs={"restore_args": restore_args})
    said["found"] = equal(found, state)
    two = ocp.CheckpointManager(directory + "/two", {"a": ocp.PyTreeCheckpointer(), "b": ocp.PyTreeCheckpointer()})
    two.save(3, {"a": state, "b": {"n": np.arange(3)}}, metrics={"loss": 1.0}, force=True)
    two.wait_until_finished()
    said["names"] = sorted(two.restore(3))
    said["b"] = np.asarray(two.restore(3)["b"]["n"]).tolist()
    return said


def paths(module: str, directory: str) -> dict[str, Any]:
    """Save to paths and restore from them."""
    from pathlib import Path

    ocp = importlib.import_module(module)
    state, like = state_of(1, (1, 2)), abstract(state_of(0, (2, 1)))
    said: dict[str, Any] = {}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(Path(directory) / "a", state)
        checkpointer.wait_until_finished()
        said["a"] = equal(checkpointer.restore(Path(directory) / "a", like), state_of(1, (2, 1)))
        try:
            checkpointer.save(Path(directory) / "a", state)
        except ValueError:
            said["again"] = "refused"
        checkpointer.save(Path(directory) / "a", state_of(2, (1, 2)), force=True)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(Path(directory) / "b", state)
        found = checkpointer.restore(
            Path(directory) / "b", like, restore_args=ocp.checkpoint_utils.construct_restore_args(like)
        )
        said["b"] = equal(found, state_of(1, (2, 1)))
    with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(Path(directory) / "c", args=ocp.args.StandardSave(state))
        checkpointer.wait_until_finished()
        found = checkpointer.restore(Path(directory) / "c", args=ocp.args.StandardRestore(like))
        said["c"] = equal(found, state_of(1, (2, 1)))
    return said


def signatures() -> list[str]:
    """Return which parameters of orbax ours do not take, or take elsewhere."""
    import inspect

    import orbax.checkpoint as ocp

    ours: Any = importlib.import_module(OURS)
    pairs = [(getattr(ours, name), getattr(ocp, name), name) for name in ours.__all__ if name[0].isupper()]
    pairs += [(getattr(ours.args, name), getattr(ocp.args, name), f"args.{name}") for name in ours.args.__all__]
    methods = ("CheckpointManager", "StandardCheckpointer")
    skipped = {"cancel", "handler", "synchronize_next_awaitable_signal_operation_id", "structure"}
    skipped |= {"create_temporary_path", "get_temporary_path"}
    for cls in methods:
        theirs = getattr(ocp, cls)
        for name in set(dir(theirs)) - skipped:
            method = inspect.getattr_static(theirs, name)
            if not name.startswith("_") and inspect.isfunction(method):
                pairs.append((getattr(getattr(ours, cls), name, None), method, f"{cls}.{name}"))
    return [problem for mine, other, name in pairs for problem in _problems(mine, other, name)]


def _problems(ours: Any, theirs: Any, name: str) -> list[str]:
    import inspect

    if ours is None:
        return [f"{name} is missing"]
    taken = list(inspect.signature(ours).parameters.values())
    by_name = {each.name: each for each in taken}
    by_place = [each.name for each in taken if each.kind is each.POSITIONAL_OR_KEYWORD]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in taken)
    problems = []
    for place, asked in enumerate(inspect.signature(theirs).parameters.values()):
        mine = by_name.get(asked.name)
        if mine is None:
            if not takes_any and asked.kind is not asked.VAR_KEYWORD:
                problems.append(f"{name}: {asked.name} is missing")
        elif asked.kind is asked.POSITIONAL_OR_KEYWORD and by_place[place : place + 1] != [asked.name]:
            problems.append(f"{name}: {asked.name} is at another place")
        elif asked.default is not asked.empty and mine.default is mine.empty:
            problems.append(f"{name}: {asked.name} has no default")
    return problems


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
    attempt(lambda: manager.save(2, args=ocp.args.ProtoSave(state["w"])))
    attempt(lambda: manager.restore(1, args=ours.args.Composite(state=ours.args.StandardRestore())))
    attempt(lambda: manager.restore(1, args=ours.args.StandardRestore({"w": jax.ShapeDtypeStruct((4,), "float32")})))
    attempt(lambda: manager.restore(7))
    attempt(lambda: ours.CheckpointManager(directory, options=ocp.CheckpointManagerOptions(todelete_subdir="old")))
    manager.delete(1)
    for name in ("keep_time_interval", "todelete_full_path", "save_decision_policy", "preservation_policy"):
        attempt(lambda name=name: ours.CheckpointManagerOptions(**{name: "some"}))
    some = ocp.options.MultiprocessingOptions(active_processes={0})
    attempt(lambda: ours.CheckpointManagerOptions(multiprocessing_options=some))
    attempt(lambda: ours.CheckpointManager(directory, item_handlers=ocp.ProtoCheckpointHandler("x")))
    attempt(lambda: ours.CheckpointManager(directory, logger=print))
    attempt(lambda: ours.CheckpointManager(directory, metadata={"run": state}))
    attempt(lambda: manager.save(4))
    attempt(lambda: manager.save(4, args=ours.args.StandardSave(state, custom_metadata={"a": 1})))
    attempt(lambda: manager.save(4, args=ours.args.StandardSave(state, {"w": ours.SaveArgs(dtype="float32")})))
    manager.save(4, args=ours.args.StandardSave(state))
    attempt(lambda: manager.restore(4, args=ours.args.PyTreeRestore(transforms={"v": ocp.Transform()})))
    attempt(lambda: manager.restore(4, args=ours.args.StandardRestore(support_layout=True)))
    shape = {"w": ours.ArrayRestoreArgs(global_shape=(4,))}
    attempt(lambda: manager.restore(4, args=ours.args.PyTreeRestore(restore_args=shape)))
    attempt(lambda: ours.PLACEHOLDER)
    manager.delete(4)
    said.append(str(manager.latest_step()))
    return said


def together(directory: str) -> dict[str, Any]:
    """Call what all processes call together, once with something else in process 1; return what is said."""
    ours: Any = importlib.import_module(OURS)
    is_second = jax.process_index() == 1
    options = ours.CheckpointManagerOptions(enable_async_checkpointing=False, best_fn=lambda metrics: metrics["loss"])
    manager = ours.CheckpointManager(directory, options=options)
    said: dict[str, Any] = {"left": []}

    def save(step: int, **others: Any) -> Any:
        args = ours.args.Composite(state=ours.args.StandardSave(state_of(step, (2, 2))), **others)
        return manager.save(step, args=args, metrics={"accuracy" if is_second and step == 8 else "loss": 1.0})

    for step in range(6):
        save(step)
    for step in range(1, 6):
        manager.delete(step)
        said["left"].append(step in manager.all_steps())
    said["again"] = save(1)
    said["unlike"] = said_of(lambda: save(7, data=ours.args.JsonSave(object() if is_second else 1)))
    said["best_fn"] = said_of(lambda: save(8))
    said["restored"] = said_of(lambda: manager.restore(0 if is_second else 1))
    said["deleted"] = said_of(lambda: manager.delete(0 if is_second else 1))
    said["steps"] = manager.all_steps()
    path, checkpointer = directory + "-path", ours.StandardCheckpointer()
    checkpointer.save(path, state_of(1, (2, 2)))
    checkpointer.wait_until_finished()
    said["path"] = said_of(lambda: checkpointer.save(path, state_of(2, (2, 2)), force=not is_second))
    # In process 0, that save began in the background: its error is raised now.
    said["after"] = said_of(lambda: checkpointer.save(path, state_of(3, (2, 2)), force=True))
    checkpointer.wait_until_finished()
    said["value"] = int(checkpointer.restore(path)["step"])
    return said


def read_only(module: str, directory: str) -> dict[str, Any]:
    """Save a step, and delete it with a manager that is read-only."""
    import warnings

    ocp = importlib.import_module(module)
    with ocp.CheckpointManager(directory) as manager:
        manager.save(1, args=ocp.args.StandardSave(state_of(1, (1, 2))))
    manager = ocp.CheckpointManager(directory, options=ocp.CheckpointManagerOptions(read_only=True))
    with warnings.catch_warnings(action="ignore"):
        manager.delete(1)
    return {"saved": manager.save(2, args=ocp.args.StandardSave(state_of(2, (1, 2)))), "steps": manager.all_steps()}


def to_bucket(url: str) -> list[str]:
    """Save to a URL twice, and then with force; return what is said and restored."""
    ours: Any = importlib.import_module(OURS)
    said: list[str] = []
    for name in ("one", "one.safetensors"):
        checkpointer = ours.StandardCheckpointer()
        for number, force in [(1, False), (2, False), (3, True)]:
            said.append(said_of(lambda: checkpointer.save(f"{url}/{name}", {"w": np.int32(number)}, force=force)))  # noqa: B023
            checkpointer.wait_until_finished()
        said.append(str(int(checkpointer.restore(f"{url}/{name}")["w"])))
    return said
