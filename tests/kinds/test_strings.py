"""Arrays of strings are data: read on demand, and reported by a conversion, which leaves them out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError
from tensorkeep.formats import FileContents, StringArray, TensorPlace
from tensorkeep.kinds import file_kind, registry

MAGIC = b"TEXTS"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    strings = {"words": StringArray((2, 2), lambda: ["a", "b", "c", "d"]), "bad": StringArray((3,), lambda: [b"x"])}
    contents = FileContents({"w": TensorPlace("U8", (5,), 0)}, strings=strings)
    kind = file_kind("a file of texts", lambda _: contents, suffixes=(), magic=MAGIC)
    monkeypatch.setattr(registry, "KINDS", (kind, *registry.KINDS))
    (tmp_path / "a.texts").write_bytes(MAGIC)
    return tmp_path / "a.texts"


def test_they_are_loaded_on_demand(path: Path) -> None:
    with tensorkeep.open(path) as file:
        assert list(file) == ["w"]
        assert list(file.strings) == ["words", "bad"]
        words = file.strings["words"].load()
        assert (words.dtype, words.tolist()) == (np.dtype(object), [["a", "b"], ["c", "d"]])
        with pytest.raises(FormatError, match="expected 3, found 1"):
            file.strings["bad"].load()


def test_a_conversion_reports_them(path: Path, tmp_path: Path) -> None:
    done = tensorkeep.convert(path, tmp_path / "a.safetensors")

    assert done.left_out == {
        "words": "4 strings",
        "bad": "3 strings",
    }
    assert tensorkeep.load(tmp_path / "a.safetensors")["w"].tobytes() == MAGIC
