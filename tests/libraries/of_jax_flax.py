"""Training with flax and optax: resumed runs end as uninterrupted ones, to the last bit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx, serialization
from flax.core import FrozenDict
from flax.training.train_state import TrainState

import tensorkeep
import tensorkeep.jax
from tensorkeep import CheckpointStore
from tensorkeep.errors import StateDictMismatchError
from tests.libraries.trees import check_equal

N_STEPS = 6
STOP = 3
"""The step after which the interrupted run is killed."""

BATCHES = np.random.default_rng(0).normal(size=(N_STEPS, 8, 4)).astype(np.float32)


class Perceptron(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Dropout(0.5, deterministic=False)(nn.relu(nn.Dense(8, name="inner")(x)))
        return nn.Dense(1, dtype=jnp.bfloat16, name="outer")(x)


@cache
def optimizer() -> Any:
    """Return one with most of what states of optax have: moments, a schedule, gathered steps, masked parts."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)
    decayed = optax.masked(optax.add_decayed_weights(1e-2), {"inner": True, "outer": False})
    parts = optax.chain(optax.clip_by_global_norm(1.0), decayed, optax.adam(schedule, mu_dtype=jnp.bfloat16))
    return optax.MultiSteps(optax.inject_hyperparams(lambda scale: optax.chain(parts, optax.scale(scale)))(0.5), 2)


MODEL = Perceptron()


def begun() -> dict[str, Any]:
    params = MODEL.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, BATCHES[0])["params"]
    state = TrainState.create(apply_fn=MODEL.apply, params=params, tx=optimizer())
    return {"state": state, "key": jax.random.key(2, impl="rbg"), "losses": np.full(N_STEPS, np.nan)}


@jax.jit
def step_of(state: TrainState, key: Any, batch: Any) -> tuple[TrainState, Any, Any]:
    key, dropout = jax.random.split(key)

    def loss_of(params: Any) -> Any:
        return jnp.mean((state.apply_fn({"params": params}, batch, rngs={"dropout": dropout}) - 1.0) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), key, loss


def trained(run: dict[str, Any], batches: Any, store: CheckpointStore | None = None) -> dict[str, Any]:
    for batch in batches:
        losses = run["losses"].copy()
        state, key, losses[int(run["state"].step)] = step_of(run["state"], run["key"], batch)
        run = {"state": state, "key": key, "losses": losses}
        if store is not None:
            store.save(
                int(state.step), tensorkeep.jax.capture(run), metrics={"valid_loss": losses[int(state.step) - 1]}
            )
    return run


def test_a_resumed_run_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    expected = trained(begun(), BATCHES)

    store = CheckpointStore(tmp_path / "run", keep_last=2, durable=False)
    trained(begun(), BATCHES[:STOP], store)
    del store
    store = CheckpointStore(tmp_path / "run", durable=False)
    assert store.latest() == STOP
    resumed = tensorkeep.jax.restore(store.load(), begun())
    ended = trained(resumed, BATCHES[STOP:], store)

    check_equal(ended, expected)
    assert step_of._cache_size() <= 2, "after the first step, which has a Python number, nothing is compiled again"
    best = int(np.argmin(expected["losses"])) + 1
    assert store.best() == best
    again = tensorkeep.jax.load(store.path_of(best), like=begun(), verify=True)
    assert again["losses"][:best].tolist() == expected["losses"][:best].tolist()
    assert again["state"].tx is not None


def test_a_state_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    run = begun()
    tensorkeep.jax.save(run, tmp_path / "x.safetensors")
    other = run | {"state": TrainState.create(apply_fn=None, params=run["state"].params, tx=optax.sgd(0.1, 0.9))}

    with pytest.raises(StateDictMismatchError) as caught:
        tensorkeep.jax.load(tmp_path / "x.safetensors", like=other)

    assert "state.opt_state.0.trace.inner.kernel" in caught.value.missing
    assert "state.opt_state.acc_grads.inner.kernel" in caught.value.unexpected


def test_the_error_of_other_functions_names_the_one_that_takes_pytrees(tmp_path: Path) -> None:
    module = objects(0)["model"]
    for value in (FrozenDict({"w": jnp.ones(2)}), module, nnx.state(module), begun()["state"]):
        with pytest.raises(tensorkeep.StateError, match=r"tensorkeep\.jax\.capture"):
            tensorkeep.save({"state": value}, tmp_path / "x.safetensors")


def test_names_are_the_ones_that_the_libraries_use(tmp_path: Path) -> None:
    tensorkeep.jax.save(begun(), tmp_path / "x.safetensors")

    names = set(tensorkeep.open(tmp_path / "x.safetensors"))

    assert {"state.params.inner.kernel", "state.params.outer.bias", "state.opt_state.mini_step", "key"} <= names
    assert "state.opt_state.inner_opt_state.inner_state.0.2.0.mu.inner.kernel" in names


def test_frozen_dicts_and_boxed_parameters(tmp_path: Path) -> None:
    boxed = nn.Partitioned(jnp.ones((2, 2)), names=("x", None))
    tree = FrozenDict({"params": {"kernel": boxed, "bias": jnp.ones(2)}})
    tensorkeep.jax.save(tree, tmp_path / "x.safetensors")

    check_equal(tensorkeep.jax.load(tmp_path / "x.safetensors", like=tree), tree)


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Linear(4, 4, rngs=rngs)
        self.head = nnx.Linear(4, 4, rngs=rngs)
        self.head.kernel = self.embed.kernel
        self.blocks = nnx.List([nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)])

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.embed(x))


def objects(seed: int) -> dict[str, Any]:
    model = Net(nnx.Rngs(seed, dropout=jax.random.key(seed, impl="rbg")))
    return {"model": model, "optimizer": nnx.Optimizer(model, optimizer_of_objects(), wrt=nnx.Param)}


def optimizer_of_objects() -> Any:
    return optax.adam(optax.exponential_decay(0.1, 2, 0.5))


@nnx.jit
def step_with(model: Net, optimizer: nnx.Optimizer, batch: Any) -> Any:  # type: ignore[type-arg]
    loss, gradients = nnx.value_and_grad(lambda module: jnp.mean((module(batch) - 1.0) ** 2))(model)
    optimizer.update(model, gradients)
    return loss


def states_of(run: dict[str, Any]) -> dict[str, Any]:
    return {name: nnx.state(value) for name, value in run.items()}


def test_a_resumed_run_of_nnx_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    expected = objects(0)
    for place, batch in enumerate(BATCHES):
        if place == STOP:
            tensorkeep.jax.save(expected, path)
        step_with(expected["model"], expected["optimizer"], batch)

    fresh = objects(1)
    before = states_of(fresh)
    new = tensorkeep.jax.load(path, like=fresh)
    check_equal(states_of(fresh), before)
    for name, state in tensorkeep.jax.load(path, like=before).items():
        nnx.update(fresh[name], state)

    for resumed in (new, fresh):
        for batch in BATCHES[STOP:]:
            step_with(resumed["model"], resumed["optimizer"], batch)
        check_equal(states_of(resumed), states_of(expected))
        assert resumed["model"].head.kernel is resumed["model"].embed.kernel


def test_objects_of_nnx_are_the_state_that_they_hold(tmp_path: Path) -> None:
    run = objects(0)
    tensorkeep.jax.save(run, tmp_path / "x.safetensors")

    names = set(tensorkeep.open(tmp_path / "x.safetensors"))
    abstract = tensorkeep.jax.load(tmp_path / "x.safetensors", like=nnx.eval_shape(lambda: objects(0)))
    parameters = tensorkeep.jax.load(
        tmp_path / "x.safetensors", like={"model": nnx.state(run["model"], nnx.Param)}, strict=False
    )

    state = nnx.state(run["model"], nnx.Param)
    replicated = jax.sharding.NamedSharding(jax.make_mesh((1,), ("x",)), jax.sharding.PartitionSpec())
    shardings = jax.tree.map(lambda _: replicated, state)
    placed = tensorkeep.jax.load(
        tmp_path / "x.safetensors", like={"model": state}, shardings={"model": shardings}, strict=False
    )
    assert {leaf.sharding for leaf in jax.tree.leaves(placed)} == {replicated}
    assert {"model.embed.kernel", "model.blocks.0.mean", "model.blocks.1.rngs.key", "optimizer.step"} <= names
    assert "model.head.kernel" not in names
    check_equal(states_of(abstract), states_of(run))
    check_equal(parameters["model"], nnx.state(run["model"], nnx.Param))


def test_files_of_flax_and_orbax_fill_a_template(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    state = begun()["state"]
    trained_state = step_of(state, jax.random.key(0), BATCHES[0])[0]
    (tmp_path / "state.msgpack").write_bytes(serialization.to_bytes(trained_state))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", trained_state)

    for name in ("state.msgpack", "orbax"):
        loaded = tensorkeep.jax.load(tmp_path / name, like=state)
        for leaf, expected in zip(jax.tree.leaves(loaded), jax.tree.leaves(trained_state), strict=True):
            assert leaf.dtype == expected.dtype
            assert np.array_equal(leaf, expected)
