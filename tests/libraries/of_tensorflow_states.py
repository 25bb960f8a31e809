"""Whole states of TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tensorkeep.tensorflow
from tensorkeep.errors import StateDictMismatchError, StateError
from tests.libraries.states import RunStates, as_numpy, flat


class Model(tf.Module):  # type: ignore[misc]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.random.normal((4, width)))
        self.scales = [tf.Variable(1.0), tf.Variable(tf.random.normal(()))]
        self.counts = {"steps": tf.Variable(0, dtype=tf.int64, trainable=False)}
        self.noise = tf.random.Generator.from_seed(3)
        self.inner = tf.Module()
        self.inner.tied = self.weight
        self.output = keras.layers.Dense(2)
        self.output.build((None, width))

    @tf.function  # type: ignore[misc]
    def __call__(self, x: Any) -> Any:
        self.counts["steps"].assign_add(1)
        hidden = x @ self.weight * self.scales[0] + self.scales[1]
        return self.output(hidden + self.noise.normal(tf.shape(hidden)))


def trained(model: Model) -> list[Any]:
    return [model.weight, *model.scales, *(variable.value for variable in model.output.trainable_variables)]


class TestTensorflow(RunStates):
    api = tensorkeep.tensorflow

    def run(self, width: int = 3) -> dict[str, Any]:
        model = Model(width)
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(trained(model))
        return {"model": model, "optimizer": optimizer}

    def train(self, run: dict[str, Any], n_steps: int) -> None:
        model = run["model"]
        for _ in range(n_steps):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(tf.random.get_global_generator().normal((5, 4))) ** 2)
            run["optimizer"].apply_gradients(zip(tape.gradient(loss, trained(model)), trained(model), strict=True))

    def draw(self) -> Any:
        return tf.random.get_global_generator().normal((2,)).numpy().tolist()

    def test_names_are_those_of_checkpoints(self) -> None:
        names = list(self.api.capture(model=Model(3))["model"])
        assert {"weight", "scales.0", "scales.1", "counts.steps"} <= set(names)
        assert sum(name.endswith("kernel") for name in names) == 1

    def test_checkpoints_variables_and_generators(self, tmp_path: Path) -> None:
        def objects() -> dict[str, Any]:
            return {
                "checkpoint": tf.train.Checkpoint(step=tf.Variable(1), inner=tf.Module()),
                "variable": tf.Variable([1, 2], dtype=tf.bfloat16),
                "generator": tf.random.Generator.from_seed(1),
                "several": [tf.Variable(1.0), tf.Variable(True)],
            }

        saved, others = objects(), objects()
        saved["checkpoint"].step.assign(7)
        saved["variable"].assign([3, 4])
        saved["several"][1].assign(False)
        saved["generator"].normal((3,))
        state = self.api.capture(**saved, epoch=3)
        tensorkeep.save(state, tmp_path / "x.safetensors")
        saved["checkpoint"].step.assign(8)
        assert int(state["checkpoint"]["step"]) == 7, "what was captured does not change"
        saved["checkpoint"].step.assign(7)

        assert self.api.restore(tmp_path / "x.safetensors", **others) == {"epoch": 3}

        assert flat(self.api.capture(**others)) == flat(self.api.capture(**saved))
        threefry = tf.random.Generator.from_seed(1, alg="threefry")
        with pytest.raises(StateDictMismatchError, match="generator is not a state of this random"):
            self.api.restore(tmp_path / "x.safetensors", generator=threefry)
        for broken in (3, {"algorithm": 2}, {"algorithm": 2, "state": np.ones(3)}, {"algorithm": 2, "state": "x"}):
            with pytest.raises(StateDictMismatchError, match="is not a state of this random generator"):
                self.api.restore({"generator": broken}, generator=threefry, rng=False)

    def test_states_that_are_not_in_variables_are_refused(self) -> None:
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        for child in (table, iter(tf.data.Dataset.range(3))):
            with pytest.raises(StateError, match="`child` has a state that is not in variables"):
                self.api.capture(model=tf.train.Checkpoint(child=child))

    def test_a_variable_of_unknown_shape(self) -> None:
        variable = tf.Variable(np.ones((2, 3), "float32"), shape=tf.TensorShape([None, 3]))
        state = as_numpy(self.api.capture(model=variable, rng=False))
        variable.assign(np.zeros((5, 3), "float32"))
        self.api.restore(state, model=variable, rng=False)
        assert variable.numpy().shape == (2, 3)
        with pytest.raises(StateDictMismatchError, match="another shape"):
            self.api.restore({"model": {"value": np.ones((2, 4), "float32")}}, model=variable, rng=False)


def test_variables_in_nested_states(tmp_path: Path) -> None:
    state = {
        "model": {"w": tf.Variable([1.0, 2.0]), "half": tf.Variable(tf.ones(3, tf.bfloat16), trainable=False)},
        "plain": tf.ones(2),
    }
    tensorkeep.save(state, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors")

    found = loaded["model"]
    assert all(isinstance(variable, tf.Variable) for variable in found.values())
    assert (found["w"].trainable, found["half"].trainable) == (True, False)
    assert found["w"].assign_add([1.0, 1.0]).numpy().tolist() == [2.0, 3.0]
    assert found["half"].dtype == tf.bfloat16
    assert not isinstance(loaded["plain"], tf.Variable)
    for _ in range(2):
        arrays = tensorkeep.load(tmp_path / "x.safetensors", framework="numpy")["model"]
        assert {name: type(array) for name, array in arrays.items()} == {"w": np.ndarray, "half": np.ndarray}
        assert arrays["w"].tolist() == [1.0, 2.0], "a variable's memory is its own"
