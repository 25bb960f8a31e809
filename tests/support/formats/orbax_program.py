"""Programs that use orbax; `python orbax_program.py FUNCTION ARGUMENT...` runs one."""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint._src.metadata.pytree_metadata_options import PyTreeMetadataOptions

Moments = collections.namedtuple("Moments", "mu nu")  # noqa: PYI024 - its fields have no types in a checkpoint

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2"),
)


def array_of(name: str) -> np.ndarray[Any, Any]:
    """Return an array of a dtype, the same in every process."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    bits = np.random.default_rng(len(name)).integers(0, 2 if name == "bool" else 100, (5, 6))
    return bits.astype(dtype)


def tree() -> dict[str, Any]:
    """Return a tree with every container and kind of leaf."""
    return {
        "params": {"dense/~/w": jnp.arange(12.0).reshape(3, 4), "layers": [jnp.arange(3), jnp.ones((2, 2))]},
        "moments": Moments(jnp.ones(3), jnp.zeros(3)),
        "pair": (jnp.ones(2, jnp.bfloat16), "a text"),
        "step": 7,
        "rate": 0.5,
        "count": np.arange(4, dtype=np.uint16),
        "none": None,
        "no_dict": {},
        "no_list": [],
        "no_tuple": (),
    }


def save_arrays(source: str, directory: str, form: str) -> None:
    container, zarr = form.split("-")
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=container == "ocdbt", use_zarr3=zarr == "zarr3")
    with np.load(source) as archive, ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(Path(directory).absolute(), dict(archive))


def save_all(directory: str) -> None:
    """Save every form that orbax writes."""
    root = Path(directory).absolute()
    for is_database in (False, True):
        for is_zarr3 in (False, True):
            handler = ocp.PyTreeCheckpointHandler(use_ocdbt=is_database, use_zarr3=is_zarr3)
            with ocp.Checkpointer(handler) as checkpointer:
                checkpointer.save(root / f"{'ocdbt' if is_database else 'files'}-{2 + is_zarr3}", tree())
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(root / "standard", {name: array_of(name) for name in DTYPES})
    rich = ocp.PyTreeCheckpointHandler(pytree_metadata_options=PyTreeMetadataOptions(support_rich_types=True))
    with ocp.Checkpointer(rich) as checkpointer:
        checkpointer.save(root / "rich", tree())
    chunked = {"w": jnp.arange(64.0 * 48).reshape(64, 48), "cube": jnp.arange(6.0 * 7 * 8).reshape(6, 7, 8)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        save_args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=512), chunked)
        checkpointer.save(root / "chunked", chunked, save_args=save_args)
        checkpointer.save(root / "int4", {"w": jnp.ones(4), "packed": jnp.ones(4, jnp.int4)})
    with ocp.CheckpointManager(root / "run") as manager:
        for step in (1, 2, 10):
            items = {
                "state": ocp.args.PyTreeSave({"w": jnp.full(3, step)}),
                "meta": ocp.args.JsonSave({"step": step, "names": ["a"]}),
                "rng": ocp.args.JaxRandomKeySave(jax.random.key(step)),
            }
            manager.save(step, args=ocp.args.Composite(**items), custom_metadata={"note": "ours"})
        manager.wait_until_finished()
    with ocp.CheckpointManager(root / "single") as manager:
        manager.save(5, args=ocp.args.StandardSave({"w": jnp.ones(3)}))
        manager.wait_until_finished()


def save_by_new_functions(directory: str) -> None:
    """Save by the functions that are to be orbax's next interface."""
    from orbax.checkpoint.experimental import v1

    root = Path(directory).absolute()
    v1.save_pytree(root / "tree", tree())
    v1.save_checkpointables(root / "items", {"model": {"w": jnp.ones(3)}, "data": {"at": 4}})
    with v1.training.Checkpointer(root / "run") as checkpointer:
        for step in (2, 10):
            checkpointer.save_pytree(step, {"w": jnp.full(3, step)})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
