"""Merged models: the numbers of mergekit and of the papers, from files that are never read as a whole."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep import LazyTensors
from tensorkeep.errors import RefusedError, TensorNotFoundError
from tensorkeep.merging import average, dare, dare_ties, ema, slerp, task_arithmetic, ties
from tests.support import merging
from tests.support.merging.models import DENSITY, SCALE, WEIGHTS, T, models

MERGEKIT = json.loads(Path(merging.__path__[0], "mergekit.json").read_text())
"""What mergekit makes of the same models; `from_mergekit.py` beside it wrote it."""


@pytest.fixture
def opened(tmp_path: Path) -> list[LazyTensors]:
    for place, model in enumerate(models()):
        tensorkeep.save(model, tmp_path / f"{place}.safetensors", metadata={"model": str(place)})
    return [tensorkeep.open(tmp_path / f"{place}.safetensors", framework="torch") for place in range(len(models()))]


def test_averages(opened: list[LazyTensors]) -> None:
    weights = [3, 1, 4]
    view = average(*opened, weights=weights)
    plain = average(*opened)["w"].load()

    w, b = (
        sum(model[name].double() * weight for model, weight in zip(models(), weights, strict=True)) / 8
        for name in "wb"
    )
    torch.testing.assert_close(view["w"].load(), w.float())
    torch.testing.assert_close(view["b"][2:4], b[2:4].float())
    stacked = torch.stack([model["w"] for model in models()])
    assert torch.equal(plain, stacked.sum(0) / len(stacked))  # mergekit's `linear`, where all weights are 1
    assert view["positions"].load().tolist() == [0, 1, 2, 3]
    assert view.metadata == opened[0].metadata


def test_a_moving_average_is_what_a_training_loop_keeps(opened: list[LazyTensors]) -> None:
    kept = models()[0]["w"].double()
    for model in models()[1:]:
        kept = 0.9 * kept + 0.1 * model["w"].double()

    torch.testing.assert_close(ema(*opened, decay=0.9)["w"].load(), kept.float())
    torch.testing.assert_close(ema(*opened, decay=0)["w"].load(), models()[-1]["w"])


def test_slerp_is_mergekits(opened: list[LazyTensors]) -> None:
    base, other, _ = opened

    torch.testing.assert_close(slerp(base, other, T)["w"].load(), torch.tensor(MERGEKIT["slerp"]))
    torch.testing.assert_close(slerp(base, other, 0)["w"].load(), models()[0]["w"])
    torch.testing.assert_close(slerp(base, other, 1)["w"][1:3], models()[1]["w"][1:3])


@pytest.mark.parametrize("factor", [0.0, 1.0, 2.0, -1.0])
def test_directions_that_have_no_arc_between_them(factor: float) -> None:
    a = torch.tensor([3.0, 4.0])
    first, second = (tensorkeep.open(tensorkeep.torch.save({"x": x}), framework="torch") for x in (a, a * factor))

    torch.testing.assert_close(slerp(first, second, 0.5)["x"].load(), a * (1 + factor) / 2)


def test_ties_is_mergekits(opened: list[LazyTensors]) -> None:
    base, *others = opened

    merged = ties(base, *others, density=DENSITY, weights=WEIGHTS, scale=SCALE)

    torch.testing.assert_close(merged["w"].load(), torch.tensor(MERGEKIT["ties"]))
    torch.testing.assert_close(merged["w"][::2, 1], torch.tensor(MERGEKIT["ties"])[::2, 1])


def test_ties_takes_the_change_of_the_elected_sign() -> None:
    changes = [[4.0, -3, 1, 0], [2.0, 5, -2, 0], [-9.0, 0.1, 0.2, 0]]
    files = [tensorkeep.open(tensorkeep.torch.save({"x": torch.tensor(change)})) for change in [[0.0] * 4, *changes]]

    merged = ties(*files, density=0.5)["x"].load()

    np.testing.assert_allclose(merged, [-9, 5, 0.2, 0])  # kept: 4 and -3; 5 and the first 2; -9 and 0.2


def test_task_arithmetic_adds_what_differs(opened: list[LazyTensors]) -> None:
    base, first, second = models()

    merged = task_arithmetic(*opened, weights=[1, -0.5], scale=2)

    expected = base["w"] + 2 * (first["w"] - base["w"]) - (second["w"] - base["w"])
    torch.testing.assert_close(merged["w"].load(), expected)


def test_dare_keeps_a_random_part_and_makes_it_larger() -> None:
    base, other = ({"x": np.full(100_000, value, np.float32)} for value in (1, 3))
    files = [tensorkeep.open(tensorkeep.numpy.save(tensors)) for tensors in (base, other)]

    merged = dare(*files, density=0.25, seed=7)["x"].load()

    assert set(merged.tolist()) == {1.0, 9.0}
    assert abs((merged == 9).mean() - 0.25) < 0.01
    np.testing.assert_array_equal(merged[5:99], dare(*files, density=0.25, seed=7)["x"][5:99])
    assert (merged != dare(*files, density=0.25, seed=8)["x"].load()).any()


@pytest.mark.parametrize("weights", [None, [0.7, 1.3, -0.4]])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_dare_ties_adds_what_is_kept_and_has_the_elected_sign(weights: list[float] | None, scale: float) -> None:
    base, *models = np.random.default_rng(3).standard_normal((4, 5000)).astype(np.float32)
    file, *files = [tensorkeep.open(tensorkeep.numpy.save({"x": numbers})) for numbers in (base, *models)]
    given = np.array(weights or [1, 1, 1])

    merged = dare_ties(file, *files, density=0.3, seed=5, weights=weights, scale=scale)["x"].load()

    kept = [  # each model's part alone, as `dare` drops it
        dare(file, *files, density=0.3, seed=5, weights=list(one))["x"].load() - base for one in np.eye(3)
    ]
    for part, model in zip(kept, models, strict=True):
        where = np.abs(part) > 1e-4
        assert abs(where.mean() - 0.3) < 0.03
        np.testing.assert_allclose(part[where], ((model - base) / 0.3)[where], rtol=1e-2, atol=1e-3)
    changes = (np.stack(models).astype(np.float64) - base) / 0.3
    weighted = np.where(np.abs(kept) > 1e-4, changes, 0) * given[:, None]
    elected = np.where(weighted.sum(axis=0) >= 0, 1, -1)
    expected = base + scale * np.where(np.sign(weighted) == elected, weighted, 0).sum(axis=0)
    np.testing.assert_allclose(merged, expected, rtol=1e-4, atol=1e-5)


def test_dare_ties_of_one_model_is_dare(opened: list[LazyTensors]) -> None:
    base, other, _ = opened

    one = dare_ties(base, other, density=0.5, seed=1, weights=[1.5], scale=2)["w"].load()

    torch.testing.assert_close(one, dare(base, other, density=0.5, seed=1, weights=[1.5], scale=2)["w"].load())


def test_halves_are_computed_in_single_precision_and_rounded_once(tmp_path: Path) -> None:
    halves = [
        torch.tensor([1.0, 256.0]).bfloat16(),
        torch.tensor([1 / 128, 1.0]).bfloat16(),
        torch.tensor([1.0, 1.0]).bfloat16(),
    ]
    files = [tensorkeep.open(tensorkeep.torch.save({"x": half}), framework="torch") for half in halves]

    merged = task_arithmetic(*files)["x"].load()

    exact = halves[1].double() + halves[2].double() - halves[0].double()
    assert merged.dtype == torch.bfloat16
    torch.testing.assert_close(merged, exact.bfloat16(), rtol=0, atol=0)


def test_double_precision_stays(tmp_path: Path) -> None:
    tensors = [{"x": np.array([1.0, 1 / 3])}, {"x": np.array([1e-15, 1.0])}]
    files = [tensorkeep.open(tensorkeep.numpy.save(each)) for each in tensors]

    np.testing.assert_array_equal(average(*files)["x"].load(), [(1 + 1e-15) / 2, (1 / 3 + 1) / 2])


MERGES: dict[str, Callable[..., Any]] = {
    "average": average,
    "ema": lambda *files: ema(*files, decay=0.5),
    "slerp": lambda a, b, *_: slerp(a, b, 0.5),
    "task_arithmetic": task_arithmetic,
    "ties": lambda *files: ties(*files, density=0.5),
    "dare": lambda *files: dare(*files, density=0.5, seed=0),
    "dare_ties": lambda *files: dare_ties(*files, density=0.5, seed=0),
}


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_every_merge_is_saved_with_digests_and_tells_what_does_not_fit(
    merge: Callable[..., Any], opened: list[LazyTensors], tmp_path: Path
) -> None:
    view = merge(*opened)
    tensorkeep.save_checkpoint(view, tmp_path / "merged", max_shard_size=150)

    assert tensorkeep.verify(tmp_path / "merged")
    loaded, saved = view.load(), tensorkeep.load(tmp_path / "merged", framework="torch")
    assert loaded.keys() == saved.keys() == models()[0].keys()
    assert all(torch.equal(loaded[name], saved[name]) for name in loaded)

    base, other, third = opened
    with pytest.raises(TensorNotFoundError, match="`w`"):
        merge(base, other.drop("w"), third)
    with pytest.raises(RefusedError, match=r"tensor `b` has another shape .* found \[7\] in .*, \[3\] in "):
        merge(base, other.map(lambda x: x[:3], "b", shape=(3,)), third)
    with pytest.raises(RefusedError, match="tensor `positions` differs between the models") as caught:
        merge(base, other.map(lambda x: x + 1, "positions"), third)["positions"].load()
    assert (caught.value.path, caught.value.tensor) == (base.path, "positions")
    assert caught.value.found == f"int64, with other values in {other.path}"


def test_counters_of_one_model() -> None:
    files = [
        tensorkeep.open(tensorkeep.numpy.save({"n": np.array([n]), "x": np.ones(1, np.float32)})) for n in (3, 5)
    ]

    assert average(*files, integers="last")["n"].load() == [5]
    assert ema(*files, decay=0.5, integers="first")["n"][0] == 3
    with pytest.raises(ValueError, match="'equal', 'first', 'last', not 'mean'"):
        average(*files, integers="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("integers", ["equal", "first", "last"])
def test_merges_pickle(opened: list[LazyTensors], integers: Any) -> None:
    view = pickle.loads(pickle.dumps(average(*opened, integers=integers)))

    assert torch.equal(view["w"].load(), average(*opened)["w"].load())
    assert view["positions"].load().tolist() == [0, 1, 2, 3]


def test_arguments_that_mean_nothing(opened: list[LazyTensors]) -> None:
    with pytest.raises(ValueError, match="3 models need as many weights, not 2"):
        average(*opened, weights=[1, 2])
    with pytest.raises(ValueError, match="sum of the weights is 0"):
        average(*opened, weights=[1, -1, 0])
    with pytest.raises(ValueError, match="density"):
        ties(*opened, density=0)
    with pytest.raises(ValueError, match="decay"):
        ema(*opened, decay=1)
    with pytest.raises(ValueError, match="seed"):
        dare(*opened, density=0.5, seed=-1)
    with pytest.raises(ValueError, match="seed"):
        dare_ties(*opened, density=0.5, seed=-1)
    with pytest.raises(TypeError, match="nothing to compute from"):
        average()
