"""The types that users get, as mypy and pyright see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import jax
import mlx.core as mx
import numpy as np
import paddle
import tensorflow as tf
import torch
from numpy.typing import NDArray

import tensorkeep
import tensorkeep.flax
import tensorkeep.mlx
import tensorkeep.numpy
import tensorkeep.paddle
import tensorkeep.tensorflow
import tensorkeep.torch
from tensorkeep import LazyTensor, Opened, TensorView

if TYPE_CHECKING:  # not installed where these tests run: its arrays are then of any type
    import cupy  # pyright: ignore[reportMissingImports]


def loaded() -> None:
    assert_type(tensorkeep.load("run/"), Any)
    assert_type(tensorkeep.load("run/", framework="numpy"), dict[str, NDArray[Any]])
    assert_type(tensorkeep.load("run/", framework="torch", device="cuda"), dict[str, torch.Tensor])
    assert_type(tensorkeep.load("run/", framework="pt", only="model.*"), dict[str, torch.Tensor])
    assert_type(tensorkeep.load("run/", framework="jax"), dict[str, jax.Array])
    assert_type(tensorkeep.load("run/", framework="flax"), dict[str, jax.Array])
    assert_type(tensorkeep.load("run/", framework="tensorflow"), dict[str, tf.Tensor])
    assert_type(tensorkeep.load("run/", framework="mlx"), dict[str, mx.array])
    assert_type(tensorkeep.load("run/", framework="paddle"), dict[str, paddle.Tensor])
    assert_type(tensorkeep.load("run/", framework="cupy"), dict[str, cupy.ndarray])


def opened() -> None:
    with tensorkeep.open("model.safetensors") as file:
        assert_type(file, Opened[NDArray[Any]])
        assert_type(file["w"], LazyTensor[NDArray[Any]])
        assert_type(file["w"][:10, ::2], NDArray[Any])
        assert_type(file["w"].cast("bf16").load(), NDArray[Any])
        assert_type(file.metadata, dict[str, str])
        assert_type(file["w"].shape, tuple[int, ...])
    with tensorkeep.open("model.safetensors", framework="torch", backend="pread") as tensors:
        assert_type(tensors, Opened[torch.Tensor])
        assert_type(tensors["w"][0], torch.Tensor)
        assert_type(tensors["w"].shard(0, 1, 2), torch.Tensor)
        assert_type(tensors.load(), dict[str, torch.Tensor])
        assert_type(tensors.load_parts({"w": np.s_[:10]}), dict[str, torch.Tensor])
        assert_type(tensors.select("a.*").cast("bf16"), TensorView[torch.Tensor])
        assert_type(list(tensors.values()), list[LazyTensor[torch.Tensor]])
        assert_type(dict(tensors.items()), dict[str, LazyTensor[torch.Tensor]])
        assert_type([lazy[...] for lazy in tensors.values()], list[torch.Tensor])
    assert_type(tensorkeep.open("run/", framework="jax")["w"][0], jax.Array)
    assert_type(tensorkeep.open("run/", framework="cupy"), Opened[cupy.ndarray])


def of_any_library(framework: tensorkeep.arrays.Framework, lazy: LazyTensor) -> None:
    assert_type(tensorkeep.open("run/", framework=framework)["w"][0], Any)
    assert_type(lazy.load(), Any)


def annotated(lazy: LazyTensor[torch.Tensor], opened: Opened[jax.Array]) -> tuple[torch.Tensor, jax.Array]:
    return lazy[...], opened["w"].load()


def stored(store: tensorkeep.CheckpointStore, framework: str) -> None:
    assert_type(store.load("best"), Any)
    assert_type(store.load(500, framework="torch", only="model.*"), dict[str, torch.Tensor])
    assert_type(store.load(framework=framework), Any)
    assert_type(store.open(500)["w"][0], NDArray[Any])
    with store.open(500, framework="jax", device=jax.devices()[0]) as step:
        assert_type(step, tensorkeep.SavedDirectory[jax.Array])
        assert_type(step.load(), dict[str, jax.Array])
        assert_type(step.directory, str)


def computed() -> None:
    a = tensorkeep.open("a.safetensors", framework="torch")
    b = tensorkeep.open("b.safetensors")
    assert_type(a.map(torch.exp), TensorView[torch.Tensor])
    assert_type(tensorkeep.combine(torch.add, a, a)["w"][0], torch.Tensor)
    assert_type(tensorkeep.combine(np.add, b, a, framework="numpy"), TensorView[NDArray[Any]])
    assert_type(b["w"].with_framework("jax", device=None)[:2], jax.Array)
    assert_type(b["w"].with_framework("pt"), LazyTensor[torch.Tensor])


def opened_as_safetensors_does(framework: str) -> None:
    with tensorkeep.safe_open("model.safetensors", "pt", device="cuda:0") as file:
        assert_type(file.get_tensor("w"), torch.Tensor)
        assert_type(file.get_tensors(), dict[str, torch.Tensor])
        assert_type(file.get_slice("w")[:2], torch.Tensor)
    with tensorkeep.safe_open("model.safetensors", framework="np") as arrays:
        assert_type(arrays.get_slice("w")[0], NDArray[Any])
    assert_type(tensorkeep.safe_open("model.safetensors", "flax").get_tensor("w"), jax.Array)
    assert_type(tensorkeep.safe_open("model.safetensors", framework).get_tensor("w"), Any)


def faces() -> None:
    assert_type(tensorkeep.torch.load_file("m.safetensors"), dict[str, torch.Tensor])
    assert_type(tensorkeep.flax.load_file("m.safetensors"), dict[str, jax.Array])
    assert_type(tensorkeep.tensorflow.load_file("m.safetensors"), dict[str, tf.Tensor])
    assert_type(tensorkeep.mlx.load_file("m.safetensors"), dict[str, mx.array])
    assert_type(tensorkeep.paddle.load_file("m.safetensors"), dict[str, paddle.Tensor])
    assert_type(tensorkeep.numpy.load_file("m.safetensors")["w"].dtype, np.dtype[Any])


def mistakes() -> None:
    tensorkeep.load("run/", framework="tosch")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]
    tensorkeep.open("run/", devize="cpu")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
