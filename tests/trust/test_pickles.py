"""A policy without pickles refuses them wherever they are: alone, in archives, after a header, beside a file."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import TrustError
from tensorkeep.server import Server
from tensorkeep.signing import PrivateKey, sign
from tensorkeep.trust import Policy, Rule
from tests.support.formats.exported import rewritten, small
from tests.support.formats.paddle_files import written_by_paddle

KEY = PrivateKey.generate()
POLICY = Policy((Rule(keys=(KEY.public,)),))
WITH_PICKLES = Policy((Rule(keys=(KEY.public,), pickles=True),))
UNSIGNED = Policy((Rule(signatures=0),))
OBJECTS = np.array([1, "a", None], dtype=object)
INPUTS = "data/sample_inputs/model.pt"
WEIGHT = "data/weights/weight_0"
WEIGHTS = "data/weights/model_weights_config.json"


def save_npz(path: Path) -> None:
    np.savez(path, w=np.ones(3), objects=OBJECTS)


def save_compressed(path: Path) -> None:
    np.savez_compressed(path, w=np.ones(3), objects=OBJECTS)


def save_records(path: Path) -> None:
    np.save(path, np.zeros(2, dtype=[("w", "f4"), ("o", "O")]))


def save_program(path: Path) -> None:
    path.write_bytes(small())


def save_weights(path: Path) -> None:
    """Save a program with one weight that is a pickle."""
    buffer = io.BytesIO()
    torch.save(torch.arange(2.0), buffer)
    pickled = {WEIGHTS: lambda text: text.replace(b'"use_pickle": false', b'"use_pickle": true', 1)}
    path.write_bytes(rewritten(small(), {INPUTS: None, WEIGHT: buffer.getvalue(), **pickled}))


PICKLED: dict[str, Callable[[Path], None]] = {
    "a.npz": save_npz,
    "packed.npz": save_compressed,
    "a.npy": save_records,
    "inputs.pt2": save_program,
    "weights.pt2": save_weights,
}


def save_clean_program(path: Path) -> None:
    path.write_bytes(rewritten(small(), {INPUTS: None}))


CLEAN: dict[str, Callable[[Path], None]] = {
    "a.npz": lambda path: np.savez(path, w=np.ones(3)),
    "a.npy": lambda path: np.save(path, np.ones(3)),
    "a.pt2": save_clean_program,
}


@pytest.mark.parametrize("name", PICKLED)
@pytest.mark.parametrize("policy", [POLICY, UNSIGNED])
def test_a_file_with_pickles_is_refused(tmp_path: Path, name: str, policy: Policy) -> None:
    path = tmp_path / name
    PICKLED[name](path)
    sign(path, KEY)

    def is_refused(call: Callable[..., Any], *args: Any) -> None:
        with pytest.raises(TrustError, match="does not allow pickles"):
            call(*args, trust=policy)

    is_refused(tensorkeep.open, path)
    is_refused(tensorkeep.load, path)
    verification = tensorkeep.verify(path, trust=policy)
    assert [finding.kind for finding in verification.findings] == ["refused"]
    assert "does not allow pickles" in str(verification.findings[0])
    assert not tensorkeep.verify(path, trust=WITH_PICKLES).is_damaged
    is_refused(tensorkeep.convert, path, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
    with tensorkeep.open(path, trust=WITH_PICKLES) as opened:
        assert opened.pickles


@pytest.mark.parametrize("name", CLEAN)
def test_a_file_without_is_opened(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    CLEAN[name](path)
    sign(path, KEY)

    assert tensorkeep.load(path, trust=POLICY)
    assert not tensorkeep.verify(path, trust=POLICY).findings
    assert not tensorkeep.scan(path, trust=POLICY).findings
    with tensorkeep.open(path) as opened:
        assert not opened.pickles


@pytest.mark.parametrize("name", PICKLED)
def test_open_refuses_what_scan_refuses(tmp_path: Path, name: str) -> None:
    PICKLED[name](tmp_path / name)

    (file,) = tensorkeep.scan(tmp_path / name, trust=UNSIGNED).files

    assert any(finding.severity == "refused" for finding in file.findings)


def test_files_with_pickles_are_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    save_npz(tmp_path / "site" / "a.npz")
    sign(tmp_path / "site" / "a.npz", KEY)
    with Server(tmp_path / "site", port=0) as server:
        url = server.url + "a.npz"
        with pytest.raises(TrustError, match="does not allow pickles"):
            tensorkeep.fetch(url, tmp_path / "here.npz", trust=POLICY)
        assert not (tmp_path / "here.npz").exists()
        tensorkeep.fetch(url, tmp_path / "here.npz", trust=WITH_PICKLES)

    assert (tmp_path / "here.npz").read_bytes() == (tmp_path / "site" / "a.npz").read_bytes()


def test_a_pickle_of_names_beside_parameters_of_paddle_is_one_too(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in written_by_paddle().glob("inference_pdmodel.pd*"):
        shutil.copy(file, model)
    sign(model, KEY)

    assert (model / "inference_pdmodel.pdiparams.info").exists()
    with pytest.raises(TrustError, match="does not allow pickles"):
        tensorkeep.open(model / "inference_pdmodel.pdiparams", trust=POLICY)
