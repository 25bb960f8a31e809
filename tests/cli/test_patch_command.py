"""`tensorkeep patch`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tensorkeep.cli import main
from tests.support.patches.models import contents, save


def test_patches_are_made_applied_undone_and_combined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2, 3):
        save(tmp_path / str(number), number)
    model = Path(shutil.copytree(tmp_path / "1", tmp_path / "model"))

    def call(*arguments: object) -> str:
        status = main(["patch", *map(str, arguments)])
        captured = capsys.readouterr()
        assert (status, captured.err) == (0, ""), captured
        return captured.out

    def fail(*arguments: object) -> str:
        assert main(["patch", *map(str, arguments)]) == 2
        return capsys.readouterr().err

    for number in (2, 3):
        output = tmp_path / f"{number}.safetensors"
        text = call("make", tmp_path / str(number - 1), tmp_path / str(number), "-o", output, "--reversible")
    assert "tensors changed, " in text
    assert "removed" in text
    made = json.loads(
        call("chain", tmp_path / "2.safetensors", tmp_path / "3.safetensors", "-o", tmp_path / "c", "--json")
    )
    assert (made["is_reversible"], made["path"]) == (True, str(tmp_path / "c"))

    assert "replaced" in call("apply", model, tmp_path / "c")
    assert contents(model) == contents(tmp_path / "3")
    call("undo", model, tmp_path / "3.safetensors")
    assert contents(model) == contents(tmp_path / "2")
    call("apply", tmp_path / "1", tmp_path / "2.safetensors", "-o", tmp_path / "new")
    assert contents(tmp_path / "new") == contents(tmp_path / "2")

    assert "for another checkpoint" in fail("apply", model, tmp_path / "c")
    assert "would be replaced" in fail("make", model, model, "-o", tmp_path / "c")
    assert "not one of make, apply, undo, chain" in fail("mend", model, model)
    assert "OLD NEW -o PATCH" in fail("make", model, model)
    assert "patch apply PATH PATCH... (" in fail("apply", model)
