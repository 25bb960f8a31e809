"""`order=`: the data of chosen tensors come first in a file, in files that every reader takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import tensorkeep
from tensorkeep.formats.safetensors import Arrangement
from tests.support.checkpoint.numbered_saves import contents

TENSORS = {
    "embed.weight": np.ones((4, 6), np.float16),
    "layers.0.bias": np.arange(3, dtype=np.float16),
    "layers.0.weight": np.ones((2, 4), np.float32),
    "layers.1.weight": np.ones((2, 4), np.float64),
    "head.weight": np.ones(8, np.uint8),
}
ORDER = ["head.*", "layers.1.*", "layers.*"]
IN_ORDER = ["head.weight", "layers.1.weight", "layers.0.weight", "embed.weight", "layers.0.bias"]
"""What is no multiple of 8 bytes comes last."""


def by_place(path: Path) -> list[str]:
    """Return the names of tensors in the order of their data."""
    with tensorkeep.open(path) as file:
        return sorted(file, key=lambda name: file[name].data_offsets)


@pytest.mark.parametrize("digests", [True, False])
def test_what_is_chosen_comes_first(tmp_path: Path, digests: bool) -> None:
    path = tmp_path / "x.safetensors"

    tensorkeep.save(TENSORS, path, order=ORDER, digests=digests)

    assert by_place(path) == IN_ORDER
    loaded = safetensors.numpy.load_file(path)
    assert all(np.array_equal(loaded[name], array) for name, array in TENSORS.items())
    if digests:
        assert list(tensorkeep.load(path)) == list(TENSORS)
        assert tensorkeep.verify(path)


def test_every_way_to_save_has_it(tmp_path: Path) -> None:
    tensorkeep.save(TENSORS, tmp_path / "plain.safetensors")

    tensorkeep.save_checkpoint(TENSORS, tmp_path / "saved", order=ORDER)
    tensorkeep.save_async(TENSORS, tmp_path / "in-background.safetensors", order=ORDER).result()
    tensorkeep.save_async(TENSORS, tmp_path / "in-background", order=ORDER).result()
    tensorkeep.reshard(tmp_path / "plain.safetensors", tmp_path / "resharded", order=ORDER)
    with tensorkeep.writing(tmp_path / "written", TENSORS, order=ORDER) as writer:
        for name, array in TENSORS.items():
            writer[name] = array
    tensorkeep.save_checkpoint(TENSORS, "memory://order/", order=ORDER)
    tensorkeep.convert(tmp_path / "plain.safetensors", tmp_path / "converted", order=ORDER)
    step = tensorkeep.CheckpointStore(tmp_path / "run", order=ORDER).save(1, TENSORS)

    for shard in Path(step).glob("*.safetensors"):
        names = by_place(shard)
        assert names == [name for name in IN_ORDER if name in names]
    for name in ("saved", "in-background", "resharded", "written", "converted"):
        assert by_place(tmp_path / name / "model.safetensors") == IN_ORDER, name
    assert by_place(tmp_path / "in-background.safetensors") == IN_ORDER
    with tensorkeep.open("memory://order/") as there:
        assert sorted(there, key=lambda name: there[name].data_offsets) == IN_ORDER
    assert contents(tmp_path / "saved") == contents(tmp_path / "written")


def test_with_a_larger_alignment(tmp_path: Path) -> None:
    tensorkeep.save(TENSORS, tmp_path / "x.safetensors", order=ORDER, align=16)

    assert by_place(tmp_path / "x.safetensors") == [
        *("layers.1.weight", "layers.0.weight", "embed.weight", "head.weight", "layers.0.bias")
    ]


@given(
    st.dictionaries(st.text("ab.", max_size=4), st.integers(0, 20), max_size=8),
    st.lists(st.sampled_from(["a*", "b", "*"])),
)
def test_every_tensor_has_one_place_and_is_aligned(sizes: dict[str, int], order: list[str]) -> None:
    tensors = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
    dtype = tensorkeep.dtypes.BY_NAME["U8"]

    names = Arrangement.of(order=order).in_order({name: (dtype, a.shape, a.nbytes) for name, a in tensors.items()})

    assert sorted(names) == sorted(tensors)
    unaligned = [name for name in names if sizes[name] % 8]
    assert not order or names[len(names) - len(unaligned) :] == unaligned


@pytest.mark.parametrize("order", ["head.*", [1], [None]], ids=str)
def test_orders_that_cannot_be(tmp_path: Path, order: object) -> None:
    for save in (tensorkeep.save, tensorkeep.save_checkpoint):
        with pytest.raises(TypeError, match="list of names or patterns"):
            save(TENSORS, tmp_path / "x", order=order)  # type: ignore[operator]
    for other in (tensorkeep.CheckpointStore, partial(tensorkeep.convert, __file__)):
        with pytest.raises(TypeError, match="list of names or patterns"):
            other(tmp_path / "x", order=order)  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())
