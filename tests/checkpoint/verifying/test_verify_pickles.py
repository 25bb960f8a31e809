"""`verify` on files of torch.save: their archives have a CRC-32 of each storage, which torch never looks at."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import TensorNotFoundError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    torch.save({"a": torch.arange(1000.0), "b": {"c": torch.full((500,), 7.0)}}, path)
    return path


def flip(path: Path, what: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(what * 100) + 50] ^= 1
    path.write_bytes(data)


def test_a_file_as_it_was_saved_is_whole(path: Path) -> None:
    found = tensorkeep.verify(path)
    assert found.is_whole
    assert (found.n_checked, found.n_tensors, found.nbytes_checked) == (2, 2, 6000)


def test_one_bit_is_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(path, torch.tensor(7.0).numpy().tobytes())
    found = tensorkeep.verify(path)
    assert [(finding.kind, finding.tensor, finding.shard) for finding in found.findings] == [
        ("data", "b.c", "model.pt")
    ]
    assert found.is_damaged
    assert main(["verify", str(path)]) == 1
    assert "`b.c`" in capsys.readouterr().out


def test_only_what_is_wanted_is_checked(path: Path) -> None:
    flip(path, torch.tensor(7.0).numpy().tobytes())
    assert tensorkeep.verify(path, names=["a"]).is_whole
    assert tensorkeep.verify(path, names="b.*").is_damaged
    with pytest.raises(TensorNotFoundError):
        tensorkeep.verify(path, names=["nothing"])


def test_files_without_sums_are_never_called_whole(path: Path, tmp_path: Path) -> None:
    legacy = tmp_path / "legacy.pt"
    torch.save({"a": torch.ones(3)}, legacy, _use_new_zipfile_serialization=False)
    found = tensorkeep.verify(legacy)
    assert not found.is_damaged
    assert not found.is_whole
    assert found.n_unprotected == 1


def test_a_file_that_would_run_code_is_checked_and_not_run(path: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Payload:
        def __reduce__(self) -> object:
            return open, (str(marker), "w")

    torch.save({"w": torch.ones(100), "payload": Payload()}, path)
    assert tensorkeep.verify(path).is_whole
    assert not marker.exists()
