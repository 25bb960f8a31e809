"""What each rank gets is what transformers gives it, and computes what the whole model does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tensorkeep
from tensorkeep.tensor_parallel import _model_plan
from tests.support import SUPPORT, forks

N_RANKS = 2


@pytest.fixture(scope="module", autouse=True)
def each_plan_is_made_once() -> Iterator[None]:
    """Spare processes that import transformers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_model_plan, "division_by_library", cache(_model_plan.division_by_library))
        yield


def test_ranks_have_what_transformers_gives_them_and_compute_the_same(models: Path, tmp_path: Path) -> None:
    for model in models.iterdir():
        done = tensorkeep.reshard_for_ranks(model, tmp_path / model.name, N_RANKS)
        assert done.divided
        assert (tmp_path / model.name / done.directories[1] / "config.json").is_file()
        assert tensorkeep.verify(tmp_path / model.name).is_whole
        assert tensorkeep.diff(model, tmp_path / model.name).is_equal

    program = SUPPORT / "tensor_parallel" / "one_rank.py"
    ranks = forks.run_ranks(N_RANKS, program, models, tmp_path, modules=forks.TRANSFORMERS)

    for rank in ranks:
        assert rank.returncode == 0, rank.stderr[-3000:]
        assert rank.stdout.split() == sorted(model.name for model in models.iterdir())


def test_heads_of_keys_and_values_go_to_several_ranks_if_they_are_few(models: Path, tmp_path: Path) -> None:
    tensorkeep.reshard_for_ranks(models / "llama", tmp_path / "ranks", 4)

    name = "model.layers.1.self_attn.k_proj.weight"
    whole = tensorkeep.open(models / "llama")[name]
    heads = [whole[:8], whole[:8], whole[8:], whole[8:]]
    for rank, head in enumerate(heads):
        own = tensorkeep.open(tmp_path / "ranks" / f"rank-{rank:05}-of-00004")[name].load()
        assert (own == head).all()
    assert tensorkeep.diff(models / "llama", tmp_path / "ranks").is_equal
