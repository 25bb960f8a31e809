"""Writes models with Keras into a folder, and beside them what Keras says their weights are.

Each `NAME.npz` has the weights of `NAME`, under the names that tensorkeep gives them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

Weights = dict[str, Any]


def layer_weights(layer: Any, prefix: str) -> Weights:
    """Return the weights of a layer and of those in it, under names as in Keras's files."""
    path = f"{prefix}/{layer.name}"
    own: Weights = {}
    layer.save_own_variables(own)
    found = {f"{path}/vars/{place}": np.asarray(weight) for place, weight in own.items()}
    for inner in getattr(layer, "layers", []):
        found |= layer_weights(inner, f"{path}/layers")
    if hasattr(layer, "cell"):
        found |= layer_weights(layer.cell, path)
    return found


def all_weights(model: Any) -> Weights:
    """Return the weights of a model and of its optimizer."""
    found: Weights = {}
    for layer in model.layers:
        found |= layer_weights(layer, "layers")
    if getattr(model, "optimizer", None) is not None:
        found |= {f"optimizer/vars/{n}": np.asarray(v) for n, v in enumerate(model.optimizer.variables)}
    return found


def trained() -> Any:
    """Return a model with nested layers, bfloat16 and the slots of an optimizer."""
    inputs = keras.Input((8,))
    x = layers.Dense(4, name="first dense")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Dropout(0.3)(x)
    tower = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2, name="in.ner")], name="tower")
    outputs = layers.Dense(1, name="head", dtype="bfloat16")(tower(x))
    model = keras.Model(inputs, outputs, name="mymodel")
    model.compile("adam", "mse", metrics=[keras.metrics.mean_absolute_error])
    model.fit(np.ones((4, 8)), np.ones((4, 1)), verbose=0)
    return model


def recurrent() -> Any:
    """Return a model whose layer has a cell, and one with a state of random numbers."""
    return keras.Sequential([keras.Input((5, 8)), layers.LSTM(4), layers.GaussianNoise(0.1), layers.Dense(3)])


def quantized() -> Any:
    """Return a model with weights of 8 bits."""
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4), layers.EinsumDense("ab,bc->ac", 4)])
    model.quantize("int8")
    return model


def plain() -> Any:
    """Return a model whose weights are whole numbers."""
    model = keras.Sequential([keras.Input((4,)), layers.Dense(6, name="one"), layers.Dense(5, name="two")])
    model.set_weights([
        np.arange(weight.size, dtype=np.float32).reshape(weight.shape) for weight in model.get_weights()
    ])
    return model


def save(folder: Path, name: str, weights: Weights) -> None:
    """Save what weights are expected; bfloat16 as it is in memory."""
    plain = {path: w.view(np.uint16) if w.dtype.name == "bfloat16" else w for path, w in weights.items()}
    np.savez(folder / f"{name}.npz", **plain)


def main(folder: Path) -> None:
    """Write all models."""
    for name, model in (("trained", trained()), ("recurrent", recurrent()), ("quantized", quantized())):
        model.save(folder / f"{name}.keras")
        model.save_weights(folder / f"{name}.weights.h5")
        for suffix in (".keras", ".weights.h5"):
            save(folder, name + suffix, all_weights(model))
    for name, model, shard_nbytes in (("sharded", recurrent(), 600), ("plain", plain(), 150)):
        model.save_weights(folder / f"{name}.weights.json", max_shard_size=shard_nbytes / 1024**3)
        save(folder, f"{name}.weights.json", all_weights(model))
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(4, name="a"), layers.Dense(2, name="b.c")], name="legacy"
    )
    model.compile("sgd", "mse")
    model.save(folder / "legacy.h5")
    weights = {weight.path: np.asarray(weight) for weight in model.weights}
    save(folder, "legacy.h5", weights | {f"optimizer/{v.path}": np.asarray(v) for v in model.optimizer.variables})
    model = keras.Sequential([keras.Input((3,)), layers.Lambda(lambda x: x + 1), layers.Dense(2)])
    model.save(folder / "lambda.keras")
    model.save(folder / "lambda.h5")
    model.save_weights(folder / "lambda.weights.h5")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
