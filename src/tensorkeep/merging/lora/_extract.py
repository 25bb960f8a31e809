"""An adapter from two checkpoints: what training changed, as thin factors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import index
from typing import Any, Final

import msgspec
import numpy as np

from tensorkeep.arrays import adapter_for
from tensorkeep.checkpoint import have_equal_bytes, refuse_quantized, save_folder, writing
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import DestinationExistsError, RefusedError, TensorNotFoundError
from tensorkeep.limits import MAX_I64
from tensorkeep.merging._computing import Numbers
from tensorkeep.merging.lora._factors import factorize
from tensorkeep.merging.lora._layout import AdaptedLayer, adapter_config, whole_name
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import LazyTensor, LazyTensors, Selector, chooser, computed_tensor, require_open, selectors_of
from tensorkeep.texts import counted, listed

EMBEDDINGS: Final = ("*embed*", "*.wte.*", "wte.*", "*.wpe.*", "wpe.*")
"""Names of embeddings in the usual models. Headers do not say which matrix is one."""

_BLOCK_LENGTH: Final = 2**18
"""Numbers of a weight in memory at a time."""


class ExtractedLayer(msgspec.Struct, frozen=True):
    """One layer of an extracted adapter.

    Attributes:
        name: Its name in the base model.
        shape: Shape of its weight.
        rank: The rank that it got: less than was asked for if the weight is smaller.
        norm: The Frobenius norm of what training changed.
        error: The norm of what the factors lack of the change, divided by `norm`: 0 if they are exact.
    """

    name: str
    shape: tuple[int, ...]
    rank: int
    norm: float
    error: float


class ExtractedLora(msgspec.Struct, frozen=True):
    """An adapter that was extracted.

    Attributes:
        layers: The layers that got factors.
        whole: Names of other tensors, of modules that changed, which the adapter holds as they are.
        n_equal: Number of tensors that did not change.
    """

    layers: tuple[ExtractedLayer, ...]
    whole: tuple[str, ...]
    n_equal: int


def extract_lora(
    base: LazyTensors,
    tuned: LazyTensors,
    directory: str | os.PathLike[str],
    *,
    rank: int,
    layers: Selector | Iterable[Selector] | None = None,
    embeddings: Selector | Iterable[Selector] = EMBEDDINGS,
    fan_in_fan_out: bool = False,
    base_model: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExtractedLora:
    """Write what training changed as a LoRA adapter, which peft and `add_lora` add to the base model again.

        with tensorkeep.open("base/") as base, tensorkeep.open("tuned/") as tuned:
            print(extract_lora(base, tuned, "adapter", rank=32).layers)

    Each matrix that changed gets the factors of `rank` that are nearest to its change (a truncated SVD in F64,
    randomized for large matrices). Everything else that changed, such as norms and biases, is stored whole. Matrices
    are read in blocks, so memory is bounded by the factors of one layer.

    Args:
        base: The model before training: an open file, checkpoint or view, by the names of the model's state dict.
        tuned: The model after it, with the same names and shapes.
        directory: Gets `adapter_model.safetensors` and `adapter_config.json`; created if its parent exists.
        rank: Columns of each factor, at least 1. The scale of the adapter is 1.
        layers: Patterns or functions that choose the names of weights to factorize; all matrices if None.
        embeddings: Patterns or functions for weights that are embeddings, whose factors peft names otherwise.
        fan_in_fan_out: Whether the weights of linear layers are (inputs, outputs), as in GPT-2.
        base_model: What the settings say the base model is: a path, or its name on the Hub.
        seed: Of the random projection: equal seeds give equal files.
        overwrite: Whether to replace an adapter in the directory.
        progress: Called with the bytes compared and factorized so far, and the most that there can be.

    Returns:
        The layers with their errors, and what is stored whole.

    Raises:
        TensorNotFoundError: If the models have other names, or a pattern matches nothing (also a KeyError).
        RefusedError: If a shape differs, a tensor is quantized, no matrix changed, or a tensor changed that no
            adapter can hold.
        DestinationExistsError: If there is an adapter, and `overwrite` is false.
        DtypeError: If a changed matrix packs elements into bytes (F4, F6).
        ValueError: If the rank is less than 1.
        BusyError: If another process is saving there.
        TransportError: If a file cannot be read or written. The directory then holds what it held before.
    """
    require_open(base, tuned)
    rank = index(rank)
    if rank < 1:
        raise ValueError(f"rank must be at least 1, not {rank}")
    _refuse_existing(os.fspath(directory), overwrite=overwrite)
    _check_same(base, tuned)
    for model in (base, tuned):
        refuse_quantized(model)
    meter = ProgressMeter(progress, 2 * base.nbytes)
    parts = _parts(base, _changed(base, tuned, meter), _matrices(base, layers))
    is_embedding = chooser(selectors_of(embeddings))
    adapted: dict[str, AdaptedLayer] = {}
    extracted: list[ExtractedLayer] = []
    with save_folder(directory) as staging:
        with writing(staging, base_name="adapter_model", max_shard_size=MAX_I64) as adapter:
            for name in parts.factorized:
                owner = _owner(name)
                layer = AdaptedLayer(owner, min(rank, *base[name].shape), is_embedding(name))
                turns = layer.is_embedding or fan_in_fan_out
                extracted.append(_write_factors(adapter, layer, base[name], tuned[name], seed, turns=turns))
                adapted[owner] = layer
                meter.add(base[name].nbytes)
            for name in parts.whole:
                adapter[whole_name(name, adapted)] = tuned[name]
        owners = [_owner(name) for name in base if name.endswith(".weight")]
        config = adapter_config(
            adapted, parts.whole, owners, rank=rank, fan_in_fan_out=fan_in_fan_out, base_model=base_model
        )
        with open(os.path.join(staging, "adapter_config.json"), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
    return ExtractedLora(tuple(extracted), parts.whole, parts.n_equal)


class _Parts(msgspec.Struct, frozen=True):
    factorized: tuple[str, ...]
    whole: tuple[str, ...]
    n_equal: int


def _parts(base: LazyTensors, changed: set[str], matrices: set[str]) -> _Parts:
    """Divide the tensors of modules that changed: peft wants all tensors of a module that is stored whole."""
    owners = {_owner(name) for name in changed}
    factorized = tuple(name for name in base if name in matrices and _owner(name) in owners)
    adapted = set(map(_owner, factorized))
    whole = tuple(
        name
        for name in base
        if name not in factorized and _owner(name) in owners and (name in changed or _owner(name) not in adapted)
    )
    parents = {name[:place] for name in base for place, sign in enumerate(name[: len(_owner(name))]) if sign == "."}
    for name in whole:
        if _owner(name) in parents or not _owner(name):
            raise RefusedError(
                f"tensor `{name}` changed, and no adapter can hold it: its module has modules of its own",
                path=base.path,
                tensor=name,
                hint="Drop it from both models (`.drop(name)`), and keep it beside the adapter",
            )
    if not factorized:
        raise RefusedError("no matrix changed: there is nothing to extract", path=base.path)
    return _Parts(factorized, whole, len(base) - len(changed))


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _changed(base: LazyTensors, tuned: LazyTensors, meter: ProgressMeter) -> set[str]:
    changed = set()
    for name, before in base.items():
        if not _are_equal(before, tuned[name]):
            changed.add(name)
        meter.add(before.nbytes)
    return changed


def _are_equal(before: LazyTensor, after: LazyTensor) -> bool:
    if before.digest is not None and after.digest is not None:
        return (before.dtype, before.digest) == (after.dtype, after.digest)
    return before.dtype == after.dtype and have_equal_bytes(before, after, lambda _: None)


def _write_factors(
    adapter: Any, layer: AdaptedLayer, before: LazyTensor, after: LazyTensor, seed: int, *, turns: bool
) -> ExtractedLayer:
    n_rows, n_columns = before.shape
    blocks = partial(_blocks_of_change, before, after)
    factors = factorize(blocks, (n_rows, n_columns), layer.rank, seed)
    name_a, name_b = layer.names
    left, right = factors.left, factors.right
    a, b = (left.T, right.T) if turns else (right, left)
    adapter[name_a] = a.astype(np.float32)
    adapter[name_b] = b.astype(np.float32)
    return ExtractedLayer(layer.name, before.shape, layer.rank, factors.norm, factors.error)


def _blocks_of_change(before: LazyTensor, after: LazyTensor) -> Iterator[tuple[int, Numbers]]:
    change = computed_tensor(
        before.name, _difference, (after, before), scope="rows", dtype="f64", framework="numpy", in_threads=True
    )
    reader = change.reader.with_framework("numpy")
    n_columns = change.shape[1]
    n_rows = max(_BLOCK_LENGTH // n_columns, 1)
    for start in range(0, change.shape[0], n_rows):
        stop = min(start + n_rows, change.shape[0])
        run = reader.read_run(change.name, change.entry, start * n_columns, stop * n_columns)
        yield start, run.reshape(stop - start, n_columns)


def _difference(after: Any, before: Any) -> Numbers:
    arrays = adapter_for("numpy")
    change: Numbers = arrays.cast(after, BY_NAME["F64"]) - arrays.cast(before, BY_NAME["F64"])
    return change


def _refuse_existing(directory: str, *, overwrite: bool) -> None:
    names = ("adapter_model.safetensors", "adapter_config.json")
    found = [name for name in names if os.path.lexists(os.path.join(directory, name))]
    if found and not overwrite:
        raise DestinationExistsError(
            "there is an adapter at the destination, which would be replaced",
            path=directory,
            found=listed(found),
            hint="Choose another; overwrite=True (--force) replaces it and keeps other files",
        )


def _check_same(base: LazyTensors, tuned: LazyTensors) -> None:
    for lacks, other in ((tuned, base), (base, tuned)):
        absent = [name for name in other if name not in lacks]
        if absent:
            raise TensorNotFoundError(
                f"{counted(len(absent), 'tensor')} of the other model {'is' if len(absent) == 1 else 'are'} not here",
                path=lacks.path,
                expected=listed(f"`{name}`" for name in absent),
                hint="Drop them from the other (`.drop(name)`)",
            )
    for name, before in base.items():
        if before.shape != tuned[name].shape:
            raise RefusedError(
                f"tensor `{name}` has another shape after training",
                tensor=name,
                expected=str(list(before.shape)),
                found=str(list(tuned[name].shape)),
                hint="An adapter cannot add rows: drop the tensor from both, and keep it beside the adapter",
            )


def _matrices(base: LazyTensors, layers: Selector | Iterable[Selector] | None) -> set[str]:
    named = base if layers is None else base.select(*selectors_of(layers))
    return {
        name
        for name, lazy in named.items()
        if name.endswith(".weight") and lazy.ndim == 2 and lazy.n_elements and lazy.is_floating_point
    }
