"""Whole states of Keras, and its callback; `test_libraries` runs this once for each backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import obstore.store
import pytest

import tensorkeep
import tensorkeep.keras
from tensorkeep.errors import FormatError, StateDictMismatchError, StateError, UnsupportedError
from tensorkeep.integrations.keras import Position, StoreCheckpoint
from tests.libraries.states import RunStates, as_numpy, flat

BACKEND = keras.backend.backend()
ORDER = np.random.default_rng(0)
X, Y = ORDER.normal(size=(24, 4)).astype("float32"), ORDER.normal(size=(24, 2)).astype("float32")


def test_it_is_the_backend_that_was_asked_for() -> None:
    assert os.environ.get("KERAS_BACKEND", "tensorflow") == BACKEND


WITHOUT_A_PACKAGE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
import {module}
"""


@pytest.mark.parametrize("module", ["tensorkeep.keras", "tensorkeep.integrations.keras"])
@pytest.mark.parametrize("missing", ["keras", BACKEND])
def test_a_package_that_is_missing_is_named_with_the_way_to_get_it(missing: str, module: str) -> None:
    program = WITHOUT_A_PACKAGE.format(missing=missing, module=module)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)

    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"tensorkeep.errors.MissingDependencyError: {missing}")
    assert f"Install it: pip install {missing}" in said
    assert ("KERAS_BACKEND" in said) == (missing != "keras")


def new_model(width: int = 3, *, compiled: bool = False) -> Any:
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((4,)),
        layers.Dense(width),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        layers.Dense(2),
    ])
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 100)
    model.compile(keras.optimizers.AdamW(schedule), "mse", metrics=["mae"], run_eagerly=not compiled)
    return model


class TestKeras(RunStates):
    api = tensorkeep.keras
    only_model: ClassVar[dict[str, Any]] = {"optimizer": False}

    def run(self, width: int = 3) -> dict[str, Any]:
        model = new_model(width)
        return {"model": model, "optimizer": model.optimizer}

    def train(self, run: dict[str, Any], n_steps: int) -> None:
        for _ in range(n_steps):
            run["model"].train_on_batch(X + self.noise(), Y)

    def noise(self) -> Any:
        return keras.ops.convert_to_numpy(keras.random.normal(X.shape))

    def draw(self) -> Any:
        return self.noise().tolist()

    def test_a_state_without_an_optimizer_goes_into_a_compiled_model_if_asked(self, tmp_path: Path) -> None:
        path, model = tmp_path / "x.safetensors", new_model()
        state = tensorkeep.keras.capture(model=new_model(), optimizer=False, rng=False)
        tensorkeep.save(state, path)

        with pytest.raises(StateDictMismatchError, match=r"has no optimizer.*pass optimizer=False"):
            tensorkeep.keras.restore(path, model=model, rng=False)
        tensorkeep.keras.restore(path, model=model, optimizer=False, rng=False)

        assert flat(tensorkeep.keras.capture(model=model, optimizer=False, rng=False)) == flat(state)

    def test_the_optimizer_of_a_compiled_model_is_found(self) -> None:
        whole, resumed = new_model(), new_model()
        self.train({"model": whole}, 1)
        state = as_numpy(tensorkeep.keras.capture(model=whole))
        assert "optimizer" not in tensorkeep.keras.capture(model=whole, optimizer=False)

        tensorkeep.keras.restore(state, model=resumed)

        assert flat(tensorkeep.keras.capture(model=resumed)) == flat(state)
        for model in (whole, resumed):
            model.compile("sgd", "mse")
        with pytest.raises(StateDictMismatchError, match=r"optimizer does not fit this SGD: .*`\w+/learning_rate`"):
            tensorkeep.keras.restore(state, model=whole)

    def test_names_are_those_of_keras_and_need_not_have_the_same_numbers(self) -> None:
        first, second = new_model(), new_model()
        names = list(tensorkeep.keras.capture(model=first)["model"])
        assert names[0].endswith("/kernel")
        assert names != list(tensorkeep.keras.capture(model=second)["model"])
        layers = keras.layers
        named = [
            keras.Sequential([keras.Input((2,)), layers.Dense(2, name=a), layers.Dense(2, name=b)], name="m")
            for a, b in (("block_1", "block_2"), ("block_2", "block_1"))
        ]
        state = as_numpy(tensorkeep.keras.capture(model=named[0], rng=False))
        tensorkeep.keras.restore(state, model=named[1], rng=False)
        for name in ("block_1", "block_2"):  # names that are all there are names, whatever their order
            found, expected = (model.get_layer(name).get_weights()[0] for model in reversed(named))
            assert np.array_equal(found, expected)

    def test_metrics_layers_seeds_and_variables_by_name(self, tmp_path: Path) -> None:
        def objects() -> dict[str, Any]:
            return {
                "loss": keras.metrics.Mean(name="loss"),
                "scores": [keras.metrics.Mean(name="a"), keras.metrics.Mean(name="b")],
                "seed": keras.random.SeedGenerator(3),
                "scale": keras.Variable(2.0, name="scale"),
                "loss_scale": keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)),
            }

        saved, others = objects(), objects()
        weights = [keras.Variable(np.ones(3, "float32"))]
        for several in (saved, others):
            several["loss_scale"].build(weights)
        saved["loss"].update_state(3.0)
        saved["scores"][1].update_state(4.0)
        saved["scale"].assign(5.0)
        keras.random.normal((2,), seed=saved["seed"])
        tensorkeep.save(tensorkeep.keras.capture(**saved, epoch=3), tmp_path / "x.safetensors")

        assert tensorkeep.keras.restore(tmp_path / "x.safetensors", **others) == {"epoch": 3}

        assert float(others["loss"].result()) == 3
        assert float(others["scores"][1].result()) == 4
        assert float(others["scale"]) == 5
        assert flat(tensorkeep.keras.capture(**others)) == flat(tensorkeep.keras.capture(**saved))

    def test_half_precision_is_exact(self) -> None:
        layer, other = (keras.layers.Dense(2, dtype="bfloat16") for _ in range(2))
        for each in (layer, other):
            each.build((3, 3))
        state = as_numpy(tensorkeep.keras.capture(model=layer, rng=False))
        assert {array.dtype.name for array in state["model"].values()} == {"bfloat16"}
        tensorkeep.keras.restore(state, model=other, rng=False)
        assert flat(tensorkeep.keras.capture(model=other, rng=False)) == flat(state)

    def test_what_was_not_built_is_refused(self) -> None:
        for value in (keras.layers.Dense(2), keras.Sequential([keras.layers.Dense(2)])):
            with pytest.raises(StateError, match=r"has no variables yet: found `.*Build it first"):
                tensorkeep.keras.capture(model=value)
        with pytest.raises(StateError, match="this Adam has no variables yet"):
            tensorkeep.keras.capture(optimizer=keras.optimizers.Adam())

    def test_integers_of_other_backends_fit_if_their_values_do(self) -> None:
        model = new_model()
        state = as_numpy(tensorkeep.keras.capture(model=model, rng=False))
        name = next(name for name in state["optimizer"] if name.endswith("iteration"))
        for dtype in ("int32", "int64", "uint32"):
            state["optimizer"][name] = np.array(7, dtype)
            tensorkeep.keras.restore(state, model=model, rng=False)
            assert int(model.optimizer.iterations) == 7
        state["optimizer"][name] = np.array(2**63, "uint64")
        with pytest.raises(StateDictMismatchError, match=r"of another dtype: `.*iteration` .* here, uint64 saved"):
            tensorkeep.keras.restore(state, model=model, rng=False)


class Killed(Exception):
    pass


class Kill(keras.callbacks.Callback):
    """Ends training in the middle of an epoch."""

    def __init__(self, epoch: int, batch: int) -> None:
        super().__init__()
        self.at = epoch, batch
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            raise Killed


def fit(model: Any, epochs: int, *callbacks: Any) -> Any:
    return model.fit(
        X, Y, validation_data=(X, Y), batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


class TestStoreCheckpoint:
    @pytest.mark.parametrize("background", [False, True], ids=str)
    def test_a_killed_fit_continues_as_if_nothing_had_happened(self, background: bool, tmp_path: Path) -> None:
        compiled = background and BACKEND == "jax"  # which keeps variables elsewhere while it trains
        start = as_numpy(tensorkeep.keras.capture(model=(whole := new_model(compiled=compiled))))
        place = tensorkeep.remote(obstore.store.MemoryStore(), "run") if background else tmp_path / "run"
        store = tensorkeep.CheckpointStore(place, keep_last=2, monitor="val_loss")
        fit(whole, 4, StoreCheckpoint(tmp_path / "whole"))

        first, saver = new_model(compiled=compiled), StoreCheckpoint(store, background=background)
        tensorkeep.keras.restore(start, model=first)
        with pytest.raises(Killed):
            fit(first, 4, saver, Kill(2, 1))
        if saver._handle is not None:
            saver._handle.wait()
        resumed, callback = new_model(compiled=compiled), StoreCheckpoint(store, background=background)
        history = fit(resumed, 4, callback)

        assert callback.resumed == Position(2, 0, 6)
        assert history.epoch == [2, 3]
        assert flat(tensorkeep.keras.capture(model=resumed)) == flat(tensorkeep.keras.capture(model=whole))
        assert store.latest() == 12
        assert set(store.metrics_of(12)) == {"loss", "mae", "val_loss", "val_mae"}
        assert store.best() in store.steps()
        best = new_model()
        tensorkeep.keras.restore(store.load("best"), model=best, optimizer=False, rng=False)
        assert np.isfinite(best.evaluate(X, Y, verbose=0)[0])
        again = StoreCheckpoint(store)
        assert fit(resumed, 4, again).epoch == []
        assert fit(resumed, 1).epoch == [0], "what was resumed is over"

    def test_within_an_epoch(self, tmp_path: Path) -> None:
        model, store = new_model(), tensorkeep.CheckpointStore(tmp_path / "run", monitor="loss")
        with pytest.raises(Killed):
            fit(model, 4, StoreCheckpoint(store, every=2), Kill(1, 2))
        assert store.load()["position"] == {"epoch": 1, "batch": 2, "step": 5}
        assert store.steps() == [2, 3, 5]

        other, callback = new_model(), StoreCheckpoint(store, every=2)
        history = fit(other, 2, callback)

        assert callback.resumed == Position(1, 2, 5)
        assert history.epoch == [1]
        assert store.latest() == 8

    def test_more_objects_and_a_new_beginning(self, tmp_path: Path) -> None:
        order = np.random.default_rng(3)
        store = tensorkeep.CheckpointStore(tmp_path / "run", monitor="val_loss")
        fit(new_model(), 1, StoreCheckpoint(store, objects={"order": order}, rng=False))
        drawn, other = order.random(), np.random.default_rng(4)
        fit(new_model(), 1, StoreCheckpoint(store, objects={"order": other}, rng=False))
        assert other.random() == drawn
        callback = StoreCheckpoint(store, resume=False)
        assert fit(new_model(), 2, callback).epoch == [0, 1]
        assert callback.resumed is None

    def test_metrics_of_several_numbers_are_left_out(self, tmp_path: Path) -> None:
        store, model = tensorkeep.CheckpointStore(tmp_path / "run", monitor="val_loss"), new_model()
        model.compile("sgd", "mse", metrics=[keras.metrics.F1Score(), "mae"], run_eagerly=True)

        fit(model, 1, StoreCheckpoint(store))

        assert set(store.metrics_of(3)) == {"loss", "mae", "val_loss", "val_mae"}

    def test_what_does_not_fit(self, tmp_path: Path) -> None:
        for every in (0, "batch", 1.5, True):
            with pytest.raises(UnsupportedError, match="`every` is invalid"):
                StoreCheckpoint(tmp_path, every=every)  # type: ignore[arg-type]
        store = tensorkeep.CheckpointStore(tmp_path / "run", monitor="val_loss")
        fit(new_model(width=5), 1, StoreCheckpoint(store))
        model = new_model()
        before = flat(tensorkeep.keras.capture(model=model, rng=False))
        with pytest.raises(StateDictMismatchError, match="model does not fit"):
            fit(model, 2, StoreCheckpoint(store))
        assert flat(tensorkeep.keras.capture(model=model, rng=False)) == before
        store.save(99, {"weights": np.ones(3)}, {"val_loss": 3.0})
        with pytest.raises(FormatError, match="has no position"):
            fit(model, 2, StoreCheckpoint(store))
