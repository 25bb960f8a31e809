"""Formats that hold the weights of a model under names of its own: Keras's, and programs of `torch.export`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.foreign import Array, ForeignFormat

__all__ = ["MODELS"]

# Keras


def _layer(shapes: list[tuple[int, ...]]) -> Any:
    """Return a model of one layer with so many weights."""
    import os

    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    class Weights(keras.layers.Layer):  # type: ignore[misc]
        def build(self, _: Any) -> None:
            for shape in shapes:
                self.add_weight(shape=shape, initializer="zeros")

        def call(self, inputs: Any) -> Any:
            return inputs

    return keras.Sequential([keras.Input((1,)), Weights(name="layer")])


def _write_keras(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    arrays = [array for _, array in tensors]
    model = _layer([array.shape for array in arrays])
    model.set_weights(arrays)
    model.save_weights(path)
    return path


@cache
def _built(path: Path) -> Any:
    """Return the model that a file fits: Keras loads weights only into one."""
    return _layer([shape for shape, _ in _listed_keras(path)])


def _listed_keras(path: Path) -> list[tuple[tuple[int, ...], Any]]:
    import h5py

    with h5py.File(path) as file:
        return [(file[f"layers/weights/vars/{n}"].shape, "f4") for n in range(len(file["layers/weights/vars"]))]


def _load_keras(path: Path) -> Any:
    model = _built(path)
    model.load_weights(path)
    return {str(n): np.asarray(weight) for n, weight in enumerate(model.weights)}


# torch.export


def _write_pt2(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    import torch

    class Weight(torch.nn.Module):
        def __init__(self, array: Array) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.from_numpy(array), requires_grad=False)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(Weight(array) for _, array in tensors)

        def forward(self, inputs: Any) -> Any:
            return inputs + self.layers[1].weight

    torch.export.save(torch.export.export(Model(), (torch.zeros(()),)), path)
    return path


def _load_pt2(path: Path) -> Any:
    import torch

    return {name: tensor.numpy() for name, tensor in torch.export.load(path).state_dict.items()}


MODELS = (
    ForeignFormat(
        "keras",
        ".weights.h5",
        "keras",
        _write_keras,
        _listed_keras,
        _load_keras,
        lambda path, name, n_rows: _load_keras(path)[name[-1]][:n_rows],
        loops=frozenset({"load-many"}),
        row_name="layers/layer/vars/1",
        works=frozenset({"load-many", "load-large", "slice", "convert"}),
    ),
    ForeignFormat(
        "pt2",
        ".pt2",
        "torch",
        _write_pt2,
        lambda path: {name: (array.shape, array.dtype) for name, array in _load_pt2(path).items()},
        _load_pt2,
        lambda path, name, n_rows: _load_pt2(path)[name][:n_rows],
    ),
)
"""Of these, the own libraries read only whole models; Keras lists none without one."""
