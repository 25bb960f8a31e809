"""What a command that failed says: exit status 2, one line on standard error, and JSON where it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep import errors
from tensorkeep.cli import main
from tensorkeep.cli.commands import GROUPS

COMMANDS = {command.name: command for commands in GROUPS.values() for command in commands}

MISSING: dict[str, list[str]] = {
    "inspect": ["missing"],
    "slice": ["missing", "name"],
    "view": ["missing"],
    "verify": ["missing"],
    "check": ["missing"],
    "scan": ["missing"],
    "diff": ["whole.safetensors", "missing"],
    "convert": ["missing", "out"],
    "export": ["missing", "out.npz"],
    "reshard": ["missing", "out"],
    "join": ["whole.safetensors", "missing", "out"],
    "edit": ["missing", "--set", "key=text"],
    "add-block-digests": ["missing"],
    "patch": ["apply", "whole.safetensors", "missing"],
    "merge average": ["whole.safetensors", "missing", "-o", "out"],
    "merge ema": ["missing", "--decay", "0.5", "-o", "out"],
    "merge slerp": ["whole.safetensors", "missing", "--t", "0.5", "-o", "out"],
    "merge task-arithmetic": ["whole.safetensors", "missing", "-o", "out"],
    "merge ties": ["whole.safetensors", "missing", "--density", "0.5", "-o", "out"],
    "merge dare": ["whole.safetensors", "missing", "--density", "0.5", "--seed", "1", "-o", "out"],
    "merge dare-ties": ["whole.safetensors", "missing", "--density", "0.5", "--seed", "1", "-o", "out"],
    "lora add": ["whole.safetensors", "missing", "-o", "out"],
    "lora extract": ["whole.safetensors", "missing", "--rank", "2", "-o", "out"],
    "transform stack-experts": ["missing", "-o", "out"],
    "transform split-experts": ["missing", "--layout", "qwen", "-o", "out"],
    "transform vocabulary": ["missing", "--size", "4", "-o", "out"],
    "transform drop-layers": ["missing", "--layers", "1", "-o", "out"],
    "transform sparsify": ["missing", "--keep", "2:4", "-o", "out"],
    "transform relabel": ["missing", "--to", "modelopt", "-o", "out"],
    "list": ["missing"],
    "prune": ["missing"],
    "fetch": ["http://127.0.0.1:1/missing", "out"],
    "push": ["missing", "memory://published"],
    "serve": ["missing"],
    "keygen": ["missing/key.pem"],
    "sign": ["missing", "--key", "missing"],
    "run": ["missing"],
}
UNREADABLE = {name: [word.replace("missing", "unreadable") for word in MISSING[name]] for name in MISSING}
UNREADABLE["fetch"] = ["file:///unreadable", "out"]
UNREADABLE["serve"] = ["whole.safetensors"]
del UNREADABLE["run"]  # that is the program's own affair
del UNREADABLE["keygen"], UNREADABLE["sign"]  # any file can be signed
del UNREADABLE["scan"]  # reports on each file, and has status 2 too


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tensorkeep.save({"a": np.ones(3)}, "whole.safetensors")
    Path("unreadable").write_text("this is no file of tensors")


def test_the_tables_have_all_commands() -> None:
    assert {*MISSING, "install-hook"} == set(COMMANDS), "say what is missing, for each new command"


CASES = {
    **{f"{name} of nothing": [*name.split(), *words] for name, words in MISSING.items()},
    **{f"{name} of what is no checkpoint": [*name.split(), *words] for name, words in UNREADABLE.items()},
    **{f"{name} with an unknown option": [*name.split(), "--nonsense"] for name in MISSING if name != "run"},
    "install-hook with an unknown option": ["install-hook", "--nonsense"],
    "an unknown command": ["nonsense"],
    "an unknown command of a family": ["merge", "nonsense"],
    "a family alone": ["lora"],
    "a weight that is no number": ["merge", "average", "whole.safetensors", "--weights", "1,b", "-o", "out"],
    "too few weights": ["merge", "average", "whole.safetensors", "--weights", "1,2", "-o", "out"],
    "integers of no model": ["merge", "average", "whole.safetensors", "--integers", "all", "-o", "out"],
    "rank 0": ["lora", "extract", "whole.safetensors", "whole.safetensors", "--rank", "0", "-o", "out"],
    "layers that are no numbers": ["transform", "drop-layers", "whole.safetensors", "--layers", "a", "-o", "out"],
    "a direction without a key map": ["reshard", "whole.safetensors", "out", "--keys-back"],
    "an unknown option": ["--nonsense"],
}


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)
def test_what_has_no_answer_is_status_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1


WITHOUT_JSON = {"slice", "view", "serve", "run", "install-hook"}
WITH_JSON = {case: words for case, words in CASES.items() if words[0] not in WITHOUT_JSON}


@pytest.mark.parametrize("arguments", WITH_JSON.values(), ids=WITH_JSON)
def test_errors_are_json_for_programs(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main([*arguments, "--json"]) == 2

    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert list(error) == ["kind", "message", "path", "tensor", "expected", "found", "hint", "text"]
    assert error["kind"] == "UsageError" or issubclass(getattr(errors, error["kind"]), errors.TensorkeepError)
    assert captured.err == f"error: {error['text']}\n"


FINDINGS = {
    "damage": ["verify", "damaged.safetensors"],
    "a difference": ["diff", "whole.safetensors", "other.safetensors"],
    "a danger": ["scan", "dangerous.pkl"],
}


@pytest.mark.parametrize("arguments", FINDINGS.values(), ids=FINDINGS)
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_finding_is_status_1(capsys: pytest.CaptureFixture[str], arguments: list[str], options: list[str]) -> None:
    whole = Path("whole.safetensors").read_bytes()
    Path("damaged.safetensors").write_bytes(whole[:-1] + b"x")
    tensorkeep.save({"a": np.zeros(3)}, "other.safetensors")
    Path("dangerous.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")

    assert main([*arguments, *options]) == 1
    assert capsys.readouterr().err == ""


def test_a_defect_is_no_finding(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("\x1b[31mnever")

    monkeypatch.setattr(tensorkeep, "verify", broken)

    assert main(["verify", "whole.safetensors", "--json"]) == 2
    captured = capsys.readouterr()
    assert "a defect in tensorkeep" in json.loads(captured.out)["error"]["text"]
    assert "in broken" in captured.err
    assert "\x1b" not in captured.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["inspect", "whole.safetensors", "--ranks", "0"], "the value must be greater than or equal to 1 (see "),
        (["inspect", "whole.safetensors", "--ranks", "x"], "the value must be a valid integer (see "),
        (["merge", "slerp", "a", "b", "--t", "x", "-o", "out"], "the value must be a valid number (see "),
        (
            ["merge", "slerp", "whole.safetensors", "whole.safetensors", "--t", "2", "-o", "out"],
            "t must be at least 0 and at most 1",
        ),
        (
            ["reshard", "a", "b", "--stochastic", "1"],
            "a seed (--stochastic) is only for a cast",
        ),
    ],
)
def test_a_number_that_does_not_fit(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert expected in capsys.readouterr().err
