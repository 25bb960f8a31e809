"""Programs of PaddlePaddle: what computes is clean; what runs Python, touches files or is not known is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tensorkeep
from tests.support.formats.crafted_bundle import message
from tests.support.formats.paddle_files import written_by_paddle


@pytest.mark.parametrize("name", ["inference_json.json", "inference_pdmodel.pdmodel"])
def test_what_only_computes_is_clean(name: str) -> None:
    report = tensorkeep.scan(written_by_paddle() / name)

    assert [(file.form, file.findings) for file in report.files] == [("PaddlePaddle program", ())]
    assert report.verdict == "clean"


def operation(name: str, *inner: dict[str, Any]) -> dict[str, Any]:
    nested = {"regions": [region(*inner)]} if inner else {}
    return {"#": name, "A": [], "I": [], "O": [], "OA": [], **nested}


def region(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"#": "region_0", "blocks": [{"#": "block_0", "args": [], "ops": list(operations)}]}


def as_json(path: Path, *operations: dict[str, Any]) -> Path:
    program = {"base_code": {"magic": "pir", "trainable": True, "version": 4}}
    path.write_text(json.dumps({**program, "program": {"regions": [region(*operations)]}}, separators=(",", ":")))
    return path


def as_message(path: Path, *names: str) -> Path:
    operators = [(4, message((3, name.encode()))) for name in names]
    path.write_bytes(message((1, message((1, 0), (2, 0), *operators))))
    return path


def found_in(path: Path) -> list[tuple[str, str]]:
    (file,) = tensorkeep.scan(path).files
    return [(finding.severity, finding.message) for finding in file.findings]


HARMFUL = [
    ("py_func", "calls a Python function"),
    ("load", "reads a file"),
    ("load_combine", "reads a file"),
    ("save", "writes a file"),
    ("save_combine", "writes a file"),
    ("read_file", "reads a file"),
    ("print", "prints tensors"),
    ("tensorrt_engine", "runs a program in another form"),
    ("send_v2", "exchanges tensors"),
]


@pytest.mark.parametrize(("name", "deed"), HARMFUL)
def test_deeds_are_named(tmp_path: Path, name: str, deed: str) -> None:
    nested = operation("1.if", operation("1.relu"), operation("1.while", operation(f"1.{name}_")))
    inside = found_in(as_json(tmp_path / "m.json", operation("p"), operation("2.yield"), nested))
    spelled = found_in(as_json(tmp_path / "m.json", operation(f"pd_op.{name}")))
    old = found_in(as_message(tmp_path / "m.pdmodel", "relu", name, name))

    assert [severity for severity, _ in (*inside, *spelled, *old)] == ["suspicious"] * 3
    assert inside[0][1].startswith(f"the operator {name}_ {deed}")
    assert old[0][1].startswith(f"the operator {name} {deed}")
    assert old[0][1].endswith("(2 times)")


def test_what_is_not_known_is_never_clean(tmp_path: Path) -> None:
    for own in ({"#": "1.my_own"}, {"#": "3.relu"}, {"#": "custom_op.relu"}, {"#": "1."}, {"#": 1}, {"A": []}):
        found = found_in(as_json(tmp_path / "m.json", own))
        assert [severity for severity, _ in found] == ["unknown"], own
    for name in ("my_own", "", "pd_op.relu"):
        for file in ("m.pdmodel", "__model__"):
            assert [severity for severity, _ in found_in(as_message(tmp_path / file, "relu", name))] == ["unknown"]


def test_damage_is_never_clean(tmp_path: Path) -> None:
    for path in (as_json(tmp_path / "m.json", operation("1.relu")), as_message(tmp_path / "m.pdmodel", "relu")):
        content = path.read_bytes()
        for nbytes in (len(content) - 1, len(content) // 2):
            path.write_bytes(content[:nbytes])
            assert tensorkeep.scan(path).verdict not in {"clean", "dangerous"}


def test_programs_of_a_directory_are_listed(tmp_path: Path) -> None:
    as_json(tmp_path / "m.json", operation("1.py_func"))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "deep.json").write_text("[" * 100_000)

    programs = [file for file in tensorkeep.scan(tmp_path).files if file.form == "PaddlePaddle program"]
    assert [Path(file.path).name for file in programs] == ["m.json"]
