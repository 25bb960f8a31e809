"""Tensors whose values are a function of other tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorkeep
from tensorkeep import LazyTensors
from tensorkeep.errors import DtypeError, LimitError, RefusedError, TensorNotFoundError

Array = np.ndarray[Any, Any]

VALUES = {
    "a": np.arange(24, dtype=np.float32).reshape(4, 6),
    "b": np.linspace(-1, 1, 10, dtype=np.float32),
    "scalar": np.array(3, np.float32),
    "none": np.zeros((0, 5), np.float32),
}
OTHER = {name: np.asarray(array * 2 + 1) for name, array in VALUES.items()}

INDEXES: list[Any] = [
    ...,
    0,
    slice(1, 3),
    np.s_[::-1],
    np.s_[1:3, ::2],
    np.s_[[2, 0, 2], 1],
    np.s_[:, None, 3:1:-1],
    -1,
]


@pytest.fixture
def one(tmp_path: Path) -> LazyTensors:
    tensorkeep.save(VALUES, tmp_path / "one.safetensors", metadata={"of": "one"})
    return tensorkeep.open(tmp_path / "one.safetensors")


@pytest.fixture
def other(tmp_path: Path) -> LazyTensors:
    tensorkeep.save(OTHER, tmp_path / "other.safetensors")
    return tensorkeep.open(tmp_path / "other.safetensors")


def mean(x: Any, y: Any) -> Any:
    return (x + y) / 2


@pytest.mark.parametrize("index", INDEXES, ids=str)
@pytest.mark.parametrize("scope", ["tensor", "rows", "elements"])
def test_it_indexes_like_the_array(one: LazyTensors, other: LazyTensors, scope: Any, index: Any) -> None:
    computed = tensorkeep.combine(mean, one, other, names="a", scope=scope)["a"]

    np.testing.assert_array_equal(computed[index], mean(VALUES["a"], OTHER["a"])[index])


@pytest.mark.parametrize("scope", ["tensor", "elements"])
def test_any_shape_is_loaded_and_saved(one: LazyTensors, other: LazyTensors, scope: Any, tmp_path: Path) -> None:
    view = tensorkeep.combine(mean, one, other, scope=scope)

    tensorkeep.save(view, tmp_path / "mean.safetensors", digests=True)

    assert tensorkeep.verify(tmp_path / "mean.safetensors")
    loaded, saved = view.load(), tensorkeep.load(tmp_path / "mean.safetensors")
    for name, array in VALUES.items():
        expected = mean(array, OTHER[name])
        np.testing.assert_array_equal(loaded[name], expected)
        np.testing.assert_array_equal(saved[name], expected)
    assert tensorkeep.open(tmp_path / "mean.safetensors").metadata["of"] == "one"


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), data=st.data())
@pytest.mark.parametrize("scope", ["tensor", "rows", "elements"])
def test_runs_are_what_they_are_of_the_whole(scope: Any, rows: int, columns: int, data: st.DataObject) -> None:
    array = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    lazy = tensorkeep.open(tensorkeep.numpy.save({"x": array})).map(np.negative, scope=scope)["x"]
    start = data.draw(st.integers(0, array.size))
    stop = data.draw(st.integers(start, array.size))

    run = lazy.reader.read_run("x", lazy.entry, start, stop)

    np.testing.assert_array_equal(run, -array.reshape(-1)[start:stop])


def test_a_large_tensor_is_saved_in_runs_of_whole_rows(tmp_path: Path) -> None:
    tensorkeep.save({"x": np.ones((3000, 1000), np.float32)}, tmp_path / "x.safetensors")
    shapes: list[tuple[int, ...]] = []

    def halved(rows: Array) -> Array:
        shapes.append(rows.shape)
        return rows / 2

    with tensorkeep.open(tmp_path / "x.safetensors") as file:
        tensorkeep.save(file.map(halved, scope="rows"), tmp_path / "half.safetensors")

    assert len(shapes) > 3
    assert sum(shape[0] for shape in shapes) == 3000
    assert {shape[1:] for shape in shapes} == {(1000,)}
    assert (tensorkeep.load(tmp_path / "half.safetensors")["x"] == 0.5).all()


def test_by_elements_a_slice_reads_only_its_own(one: LazyTensors) -> None:
    lazy = one.map(np.negative, "a", scope="elements")
    rows = one.map(np.negative, "a", scope="rows")

    assert lazy.plan({"a": np.s_[1, 2]}).nbytes == 4
    assert rows.plan({"a": np.s_[1, 2]}).nbytes == 6 * 4
    assert one.map(np.negative, "a").plan({"a": np.s_[1, 2]}).nbytes == 24 * 4


def test_a_result_may_have_another_dtype_and_shape(one: LazyTensors, tmp_path: Path) -> None:
    sums = one.map(lambda rows: rows.sum(1).astype(np.float64), "a", scope="rows", dtype="f64", shape=(4,))
    padded = one.map(lambda whole: np.pad(whole, ((0, 2), (0, 0))), "a", shape=(6, 6))

    assert (sums["a"].dtype, sums["a"].shape, padded["a"].nbytes) == ("F64", (4,), 6 * 6 * 4)
    np.testing.assert_array_equal(sums["a"][1:3], VALUES["a"].sum(1)[1:3])
    tensorkeep.save(padded, tmp_path / "padded.safetensors")
    np.testing.assert_array_equal(
        tensorkeep.load(tmp_path / "padded.safetensors")["a"], np.pad(VALUES["a"], ((0, 2), (0, 0)))
    )


def test_what_is_not_selected_stays(one: LazyTensors) -> None:
    view = one.map(np.negative, "b")

    assert view["a"].reader == one["a"].reader
    np.testing.assert_array_equal(view["b"].load(), -VALUES["b"])
    with pytest.raises(TensorNotFoundError, match="nothing is chosen"):
        one.map(np.negative, "nothing.*")


def test_steps_follow_each_other(one: LazyTensors, other: LazyTensors) -> None:
    double = tensorkeep.combine(mean, one.cast("f64"), other.cast("f64"), scope="elements").cast("bf16")
    steps = double.map(lambda x: x, scope="elements").rename({"a": "z"}).select("z")

    assert steps["z"].dtype == "BF16"
    np.testing.assert_array_equal(
        steps["z"].load(), mean(VALUES["a"].astype(float), OTHER["a"].astype(float)).astype(ml_dtypes.bfloat16)
    )


def test_the_function_gets_tensors_of_the_framework(tmp_path: Path) -> None:
    tensorkeep.save({"w": torch.ones(3, 4, dtype=torch.bfloat16)}, tmp_path / "w.safetensors")
    kinds: list[type] = []

    def doubled(tensor: Any) -> Any:
        kinds.append(type(tensor))
        return tensor * 2

    with tensorkeep.open(tmp_path / "w.safetensors", framework="torch") as file:
        view = file.map(doubled, scope="elements")
        loaded = view["w"].load()
        tensorkeep.save(view, tmp_path / "twice.safetensors")
        assert (np.asarray(view["w"]) == 2).all()
        assert set(kinds) == {torch.Tensor}
        by_numpy = file.map(doubled, framework="numpy")["w"].load()

    assert kinds[-1] is np.ndarray
    assert isinstance(loaded, torch.Tensor)
    assert torch.equal(loaded, by_numpy)
    assert (tensorkeep.load(tmp_path / "twice.safetensors", framework="torch")["w"] == 2).all()


def test_a_function_may_return_what_it_was_given(one: LazyTensors, tmp_path: Path) -> None:
    view = one.map(lambda tensor: tensor)

    changed = view["a"].load()
    changed[...] = 7

    np.testing.assert_array_equal(view["a"].load(), VALUES["a"])


@pytest.mark.parametrize("scope", ["tensor", "rows", "elements"])
def test_what_is_read_is_not_the_functions_own(scope: Any) -> None:
    constant = np.ones((4, 6), np.float32)
    view = tensorkeep.open(tensorkeep.numpy.save({"x": constant, "y": constant})).map(lambda _: constant, scope=scope)

    loaded = view.load()
    loaded["x"][...] = 7
    view["y"][...][...] = 8

    assert (constant == 1).all()
    assert (loaded["y"] == 1).all()


@pytest.mark.parametrize("scope", ["tensor", "rows", "elements"])
def test_a_function_may_fill_one_array_again_and_again(scope: Any, tmp_path: Path) -> None:
    """Runs that wait to be written would otherwise change."""
    values = {name: np.random.default_rng(1).random((3000, 1000), np.float32) for name in ("x", "y")}
    result = np.empty(3_000_000, np.float32)

    def doubled(array: Array) -> Array:
        return np.multiply(array, 2, out=result[: array.size].reshape(array.shape))

    tensorkeep.save(values, tmp_path / "x.safetensors")
    view = tensorkeep.open(tmp_path / "x.safetensors", framework="numpy").map(doubled, scope=scope)
    tensorkeep.reshard(view, tmp_path / "doubled")

    saved = tensorkeep.load(tmp_path / "doubled", framework="numpy")
    assert all((saved[name] == array * 2).all() for name, array in values.items())


def test_few_bytes_are_not_written_out_as_many(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1).expand(2**28 + 2**20)}, tmp_path / "expanded.pt")
    expanded = tensorkeep.open(tmp_path / "expanded.pt")

    with pytest.raises(LimitError):
        tensorkeep.save(expanded.map(np.negative, scope="elements"), tmp_path / "out.safetensors")


@pytest.mark.parametrize(
    ("compute", "found"),
    [(lambda x: x[:1], r"F32 \[1, 6\]"), (lambda x: x.astype(np.float64), r"F64 \[4, 6\]")],
    ids=["shape", "dtype"],
)
def test_another_result_than_declared_is_refused(
    one: LazyTensors, compute: Callable[[Array], Array], found: str
) -> None:
    view = one.map(compute, "a")

    with pytest.raises(RefusedError, match=rf"tensor `a` gave another .* expected F32 \[4, 6\], found {found}"):
        view["a"].load()


def test_a_save_whose_function_fails_leaves_nothing(one: LazyTensors, tmp_path: Path) -> None:
    def fails(tensor: Array) -> Array:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tensorkeep.save(one.map(fails, "b"), tmp_path / "out.safetensors")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.safetensors"]


def test_names_that_not_all_have_are_an_error(one: LazyTensors, other: LazyTensors) -> None:
    with pytest.raises(TensorNotFoundError, match=r"1 tensor of the others is not here \(.*other.*`b`"):
        tensorkeep.combine(mean, one, other.drop("b"))
    with pytest.raises(TensorNotFoundError, match=r"not here \(.*one.*`b`"):
        tensorkeep.combine(mean, one.drop("b"), other)

    assert list(tensorkeep.combine(mean, one, other.drop("b"), names=["a", "none"])) == ["a", "none"]


def test_what_cannot_be_is_refused_at_once(one: LazyTensors, other: LazyTensors) -> None:
    with pytest.raises(RefusedError, match="by elements: expected inputs and a result of one shape"):
        tensorkeep.combine(mean, one, other.map(lambda x: x[:2], "a", shape=(2, 6)), names="a", scope="elements")
    with pytest.raises(RefusedError, match="by rows"):
        one.map(np.negative, "scalar", scope="rows")
    with pytest.raises(DtypeError, match="no such dtype"):
        one.map(np.negative, dtype="f33")
    with pytest.raises(ValueError, match="'tensor', 'rows', 'elements', not 'columns'"):
        one.map(np.negative, scope="columns")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        tensorkeep.combine(mean)  # type: ignore[call-arg]


def test_they_are_used_like_others(one: LazyTensors, other: LazyTensors, tmp_path: Path) -> None:
    view = tensorkeep.combine(mean, one, other, scope="elements")

    tensorkeep.save_checkpoint(view, tmp_path / "many", max_shard_size=60)
    model = torch.nn.ParameterDict({name: torch.zeros(array.shape) for name, array in VALUES.items()})
    tensorkeep.torch.load_into(model, view)

    assert tensorkeep.diff(tmp_path / "many", view).is_equal
    np.testing.assert_array_equal(model["a"].detach(), mean(VALUES["a"], OTHER["a"]))
