"""The configuration beside a checkpoint decides the numbers: it is used, missing or refused, never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import AccessDeniedError, TransportError, UnsupportedError
from tensorkeep.server import Server
from tensorkeep.tensors import TensorView
from tensorkeep.tensors.lazy import _named as named

_CONFIG = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}}


def tensors(**changes: Any) -> dict[str, Any]:
    chosen = np.random.default_rng(1)

    def words(*shape: int) -> Any:
        return chosen.integers(-(2**31), 2**31 - 1, shape, dtype=np.int32)

    scales = chosen.random((4, 64)).astype(np.float16)
    order = (np.arange(128) // 32).astype(np.int32)
    return {"l.qweight": words(16, 64), "l.qzeros": words(4, 8), "l.scales": scales, "l.g_idx": order, **changes}


def saved(path: Path, state: Any) -> Path:
    tensorkeep.save_checkpoint(state, path)
    (path / "config.json").write_text(json.dumps(_CONFIG))
    return path


def test_a_flat_state_is_dequantized_into_its_library(tmp_path: Path) -> None:
    path = saved(tmp_path / "q", {name: torch.from_numpy(array) for name, array in tensors().items()})
    with tensorkeep.open(path) as file:
        expected = tensorkeep.quantized.dequantize(file, "f32")["l.weight"].load()

    loaded = tensorkeep.load(path, dequantize="f32")
    assert list(loaded) == ["l.weight"]
    assert torch.equal(loaded["l.weight"], torch.from_numpy(expected))
    assert isinstance(tensorkeep.load(path, dequantize="f32", framework="numpy")["l.weight"], np.ndarray)


def test_a_nested_state_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path / "q", {"model": tensors(), "step": 3})
    with pytest.raises(UnsupportedError, match="this is a nested state"):
        tensorkeep.load(path, dequantize="f32")
    plain = saved(tmp_path / "plain", {"model": {"w": np.ones(3)}, "step": 3})
    assert tensorkeep.load(plain, dequantize="f32")["step"] == 3


@pytest.mark.parametrize("error", [AccessDeniedError("403"), TransportError("503")], ids=lambda error: error.message)
def test_a_configuration_that_cannot_be_read_is_an_error(tmp_path: Path, error: TransportError) -> None:
    class Served(TensorView):
        def companion(self, name: str, *, max_nbytes: int) -> bytes:
            raise error

    with tensorkeep.open(saved(tmp_path / "q", tensors())) as file:
        served = Served(file, path=file.path)
        with pytest.raises(type(error), match=f"{error.message}.*The numbers depend on it"):
            tensorkeep.quantized.layouts(served)
        assert tensorkeep.quantized.layouts(served, _CONFIG).tensors.keys() == {"l.weight"}


def test_bytes_have_no_configuration_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is not beside them."""
    path = saved(tmp_path / "q", tensors())
    monkeypatch.chdir(path)
    content = (path / "model.safetensors").read_bytes()

    with tensorkeep.open(content) as file, tensorkeep.open(path) as beside:
        assert [
            tensorkeep.quantized.layouts(each) == tensorkeep.quantized.layouts(beside) for each in (file, beside)
        ] == [
            False,
            True,
        ]


def test_a_server_is_asked_once_for_each_configuration(tmp_path: Path) -> None:
    saved(tmp_path / "q", tensors())
    with Server(tmp_path / "q", port=0) as server:
        before = tensorkeep.load(tmp_path / "q", dequantize="f32")["l.weight"]
        assert np.array_equal(tensorkeep.load(server.url, dequantize="f32")["l.weight"], before)
        asked: list[str] = []
        with tensorkeep.open(server.url) as file, pytest.MonkeyPatch.context() as patch:
            opened = named.open_source
            patch.setattr(named, "open_source", lambda path, **options: asked.append(path) or opened(path, **options))
            tensorkeep.quantized.layouts(file)
        assert [path.rpartition("/")[2] for path in asked] == ["config.json"]
