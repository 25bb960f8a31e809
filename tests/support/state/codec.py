"""The tree codec as the rest of the package uses it, without files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import torch

from tensorkeep.arrays import EncodedObject
from tensorkeep.state import Encoded, classes_by_name, decode_tree, encode_tree, selected


def leaf(value: Any) -> dict[str, Any] | None:
    """Take every array and tensor as it is."""
    return {} if isinstance(value, np.ndarray | torch.Tensor) else None


def compose(value: Any) -> EncodedObject | None:
    """Take apart what stands for the values of array libraries here: a dtype of torch, a sparse tensor's stand-in."""
    if isinstance(value, torch.dtype):
        return EncodedObject("torch", "dtype", {}, {"name": str(value)})
    return None


def decode_object(composed: EncodedObject) -> Any:
    """Do the inverse of `compose`; what is unknown stays as it is."""
    if composed.kind == "dtype":
        return getattr(torch, composed.settings["name"].removeprefix("torch."))
    return composed


def encode(value: Any) -> Encoded:
    """Take a tree apart."""
    return encode_tree(value, leaf=leaf, compose=compose)


def decode(
    tree: Any,
    tensors: dict[str, Any] | None = None,
    *,
    classes: Iterable[type] = (),
    wanted: Callable[[str], bool] | None = None,
) -> Any:
    """Make a tree of nodes and tensors, or a part of it."""
    return decode_tree(
        tree if wanted is None else selected(tree, wanted),
        tensor=lambda name, _: ({} if tensors is None else tensors)[name],
        compose=decode_object,
        find_class=classes_by_name(classes).get,
    )


def round_trip(value: Any, *, classes: Iterable[type] = (), wanted: Callable[[str], bool] | None = None) -> Any:
    """Take a tree apart, write its nodes as JSON, and make it again."""
    encoded = encode(value)
    tree = msgspec.json.decode(msgspec.json.encode(encoded.tree))
    assert tree == encoded.tree or "nan" in str(tree)
    return decode(tree, encoded.tensors, classes=classes, wanted=wanted)
