"""What `load` gives of a pickle is what it gives of the safetensors file that the pickle was converted to."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.conversion import convert
from tensorkeep.errors import LimitError
from tests.support.for_each import for_each
from tests.support.pickles.honest_arrays import ARRAYS
from tests.support.pickles.honest_files import saved
from tests.support.pickles.honest_objects import OBJECTS
from tests.support.pickles.honest_tensors import TENSORS
from tests.support.soak import rounds
from tests.support.state.exactly import assert_exactly

pytestmark = pytest.mark.filterwarnings("ignore")

ALL: dict[str, Callable[[], Any]] = TENSORS | ARRAYS | OBJECTS
NESTED = frozenset(what for what in TENSORS if what.startswith(("nested", "jagged")))
HAS_NO_DATA = frozenset(what for what in TENSORS if what.startswith("meta"))
KEYS_ARE_NO_DATA = frozenset({"enum as key", "class as key"})
NOT_COMPARED = frozenset({"schemes"})
"""Quantization schemes, which the comparison does not know; keys that are dtypes, which `verify` cannot tell yet."""

WHOLE = sorted(ALL.keys() - NESTED - HAS_NO_DATA - KEYS_ARE_NO_DATA - NOT_COMPARED)


def converted(value: Any, folder: Path, **options: Any) -> tuple[Any, Any, bool]:
    """Return what is loaded of both files, and whether anything was left out."""
    (folder / "a.pt").write_bytes(saved(value))
    conversion = convert(
        folder / "a.pt", folder / "a.safetensors", drop_unknown=True, durable=False, overwrite=True, **options
    )
    assert conversion.has_tree
    with tensorkeep.open(folder / "a.pt", framework="torch") as opened:
        theirs = opened.load_tree()  # NumPy's arrays stay NumPy's
    return tensorkeep.load(folder / "a.safetensors"), theirs, bool(conversion.left_out)


@pytest.mark.parametrize("what", WHOLE)
@for_each("share_views", [False, True])
def test_all_that_people_save_is_kept(tmp_path: Path, what: str, share_views: bool) -> None:
    value = {"anchor": torch.ones(3), "here": ALL[what]()}

    ours, theirs, is_less = converted(value, tmp_path, share_views=share_views)

    if is_less:
        assert torch.equal(ours["anchor"], torch.ones(3))
        assert ours.keys() <= theirs.keys()
    else:
        assert_exactly(ours, theirs, shares_memory=share_views)


@pytest.mark.parametrize("what", sorted(NESTED))
def test_nested_tensors_are_kept(tmp_path: Path, what: str) -> None:
    ours, theirs, _ = converted({"here": TENSORS[what]()}, tmp_path)

    assert ours["here"].layout == theirs["here"].layout
    assert ours["here"].requires_grad == theirs["here"].requires_grad
    for one, other in zip(ours["here"].unbind(), theirs["here"].unbind(), strict=True):
        assert torch.equal(one, other)


LEAVES = [what for what in WHOLE if what not in OBJECTS and "one torch" not in what and "quantized" not in what]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(LEAVES).map(lambda w: ALL[w]()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "a.b", "a.a", "b#2"]), inner, max_size=4).map(OrderedDict)
        | inner.map(lambda shared: [shared, {"a": shared, "a.0": shared}])
    ),
    max_leaves=8,
)


@hypothesis.settings(max_examples=rounds(60, 1_500))
@hypothesis.given(value=values, share_views=st.booleans())
def test_any_state_is_kept(tmp_path_factory: pytest.TempPathFactory, value: Any, share_views: bool) -> None:
    folder = tmp_path_factory.mktemp("state", numbered=True)

    ours, theirs, is_less = converted({"anchor": torch.ones(3), "": value}, folder, share_views=share_views)

    if not is_less:
        assert_exactly(ours, theirs, shares_memory=share_views)


def test_memory_that_views_share_is_stored_once_if_wanted(tmp_path: Path) -> None:
    base = torch.arange(100.0)
    value = {"left": base[:60], "right": base[40:], "again": base[:60], "alone": torch.ones(2)}

    ours, theirs, _ = converted(value, tmp_path, share_views=True, rename={"left": "first"})

    theirs["first"] = theirs.pop("left")
    assert ours.keys() == theirs.keys()
    assert ours["first"].untyped_storage().data_ptr() == ours["right"].untyped_storage().data_ptr()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    with tensorkeep.open(tmp_path / "a.safetensors") as file:
        assert file.entries.keys() == {"first#storage", "alone"}
        assert file.entries["first#storage"].nbytes == 400


def test_names_are_those_of_the_pickle(tmp_path: Path) -> None:
    one = torch.ones(2)
    value = {"a.b": torch.ones(1), "a": {"b": one, None: one}, ("x", 1): [one], 2.5: {"q": torch.eye(2).to_sparse()}}
    torch.save(value, tmp_path / "a.pt")

    convert(tmp_path / "a.pt", tmp_path / "safe")

    with tensorkeep.open(tmp_path / "a.pt") as before, tensorkeep.open(tmp_path / "safe") as after:
        assert set(before) == set(after)
        assert {"a.b", "a.b#2", "a.None", "('x', 1).0", "2.5.q.values"} <= set(after)
    assert_exactly(tensorkeep.load(tmp_path / "safe"), value)


def test_what_stands_beside_tensors_is_said(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.extra = torch.zeros(3)
    torch.save({"w": parameter, "set": {torch.ones(1)}}, tmp_path / "a.pt")

    whole = convert(tmp_path / "a.pt", tmp_path / "safe")
    chosen = convert(tmp_path / "a.pt", tmp_path / "chosen", select="*")

    assert set(whole.left_out) == {"w.extra", "set.0"}
    assert not chosen.left_out
    assert set(tensorkeep.open(tmp_path / "chosen")) == {"w", "w.extra", "set.0"}


def test_names_and_tree_follow_changes(tmp_path: Path) -> None:
    tied = torch.ones(3)
    torch.save({"model.w": tied, "model.tied": tied, "epoch": 3}, tmp_path / "a.pt")

    convert(tmp_path / "a.pt", tmp_path / "safe", rename={"model.w": "model.v"}, strip_prefix="model.", cast="bf16")

    found = tensorkeep.load(tmp_path / "safe")
    assert list(found) == ["v", "tied", "epoch"]
    assert found["v"].dtype == torch.bfloat16
    assert found["v"].data_ptr() == found["tied"].data_ptr()


def test_a_safetensors_source_keeps_its_tree_and_ties(tmp_path: Path) -> None:
    tied = np.ones(3)
    tensorkeep.save({"a": [tied, {"b": tied}], "n": 3}, tmp_path / "a.safetensors", metadata={"x": "y"})

    conversion = convert(tmp_path / "a.safetensors", tmp_path / "safe")

    found = tensorkeep.load(tmp_path / "safe")
    assert np.shares_memory(found["a"][0], found["a"][1]["b"])
    assert found["n"] == 3
    assert (conversion.n_tensors, conversion.ties) == (1, {"a.1.b": "a.0"})
    assert tensorkeep.open(tmp_path / "safe").metadata == {"format": "pt", "x": "y"}


def _below(n_frames: int, work: Callable[[], Any]) -> Any:
    return work() if not n_frames else _below(n_frames - 1, work)


def test_the_deepest_value_is_kept_unless_the_stack_ends(tmp_path: Path) -> None:
    deep = functools.reduce(lambda inner, _: [inner], range(199), torch.ones(2))
    torch.save(deep, tmp_path / "a.pt")

    _below(100, lambda: convert(tmp_path / "a.pt", tmp_path / "safe"))
    with pytest.raises(LimitError, match="too deep"):
        _below(700, lambda: convert(tmp_path / "a.pt", tmp_path / "other"))
    _below(700, lambda: convert(tmp_path / "a.pt", tmp_path / "chosen", select="*"))

    assert_exactly(tensorkeep.load(tmp_path / "safe"), deep)
    assert len(tensorkeep.open(tmp_path / "chosen")) == 1


def test_many_tensors_that_are_one_take_linear_time(tmp_path: Path) -> None:
    tied = torch.ones(2)
    torch.save({"tied": [tied] * 30_000}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe", durable=False)

    assert (conversion.n_tensors, len(conversion.ties)) == (1, 29_999)
