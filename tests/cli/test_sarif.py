"""`--sarif` of all commands that find something: valid SARIF 2.1.0, with the same exit status as without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.sarif import sarif_text
from tensorkeep.signing import PrivateKey

TEXT = {"type": "string", "minLength": 1}
MESSAGE = {"type": "object", "properties": {"text": TEXT}, "required": ["text"], "additionalProperties": False}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
INDEX = {"type": "integer", "minimum": 0}
PLACE = {
    "type": "object",
    "properties": {"uri": {"type": "string", "format": "uri-reference", "pattern": "^[!-~]+$"}, "index": INDEX},
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": False,
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "additionalProperties": False,
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "additionalProperties": False,
                                "properties": {
                                    "name": TEXT,
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "additionalProperties": False,
                                            "properties": {
                                                "id": TEXT,
                                                "shortDescription": MESSAGE,
                                                "defaultConfiguration": {
                                                    "type": "object",
                                                    "properties": {"level": LEVEL},
                                                    "additionalProperties": False,
                                                },
                                            },
                                        },
                                    },
                                },
                            }
                        },
                    },
                    "automationDetails": {
                        "type": "object",
                        "properties": {"id": TEXT},
                        "additionalProperties": False,
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "artifacts": {
                        "type": "array",
                        "uniqueItems": True,
                        "items": {
                            "type": "object",
                            "properties": {"location": PLACE},
                            "additionalProperties": False,
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": TEXT,
                                "ruleIndex": INDEX,
                                "level": LEVEL,
                                "message": MESSAGE,
                                "properties": {"type": "object"},
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "additionalProperties": False,
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "additionalProperties": False,
                                                "properties": {
                                                    "artifactLocation": PLACE,
                                                    "region": {
                                                        "type": "object",
                                                        "additionalProperties": False,
                                                        "properties": {"byteOffset": INDEX, "byteLength": INDEX},
                                                    },
                                                },
                                            },
                                            "logicalLocations": {
                                                "type": "array",
                                                "uniqueItems": True,
                                                "items": {
                                                    "type": "object",
                                                    "additionalProperties": False,
                                                    "properties": {
                                                        "fullyQualifiedName": {"type": "string"},
                                                        "kind": TEXT,
                                                    },
                                                },
                                            },
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
"""The part of the schema of SARIF 2.1.0 that is used here, without any property that is not."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = {f"layers.{n}.weight": np.full((4, 4), n, np.float32) for n in range(4)}
    tensorkeep.save_checkpoint(weights, "whole", max_shard_size=80)
    tensorkeep.save_checkpoint(weights, "bad ü", max_shard_size=80)
    shards = sorted(Path("bad ü").glob("*.safetensors"))
    shards[0].write_bytes(shards[0].read_bytes()[:-1] + b"\x01")
    shards[1].unlink()
    save_file(weights, "plain.safetensors")
    save_file({name: each for name, each in weights.items() if "2" not in name}, "gap.safetensors")
    tensorkeep.save_checkpoint(weights, "pointers", sha256=True)
    pointer = Path("pointers/model.safetensors")
    oid, nbytes = "0" * 64, pointer.stat().st_size
    pointer.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {nbytes}\n")
    PrivateKey.generate().write("k.pem")
    Path("evil.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")


CASES = {
    "whole": (["verify", "whole"], 0, set()),
    "damaged": (["verify", "bad ü"], 1, {"data", "missing"}),
    "without digests": (["verify", "plain.safetensors"], 2, {"unverifiable"}),
    "unsigned": (["verify", "whole", "--trust", "k.pub"], 1, {"signature"}),
    "pointers to other files": (["verify", "pointers", "--quick"], 1, {"foreign"}),
    "sound": (["check", "whole"], 0, set()),
    "a layer is missing": (["check", "gap.safetensors", "--against", "plain.safetensors"], 1, {"missing"}),
    "a danger": (["scan", "evil.pkl"], 1, {"dangerous"}),
}


@pytest.mark.parametrize(("arguments", "status", "rules"), CASES.values(), ids=CASES)
def test_findings_as_sarif(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, rules: set[str]
) -> None:
    assert main(arguments) == status
    capsys.readouterr()
    assert main([*arguments, "--sarif"]) == status

    text = capsys.readouterr().out
    assert text.isascii()
    document = json.loads(text)
    jsonschema.validate(document, SCHEMA, format_checker=jsonschema.FormatChecker())
    (run,) = document["runs"]
    assert run["automationDetails"]["id"].startswith(f"tensorkeep/{arguments[0]}/{quote(arguments[1])}/")
    assert {each["ruleId"] for each in run["results"]} == rules
    known = run["tool"]["driver"]["rules"]
    for each in run["results"]:
        assert known[each["ruleIndex"]]["id"] == each["ruleId"]
        for location in each["locations"]:
            place = location["physicalLocation"]["artifactLocation"]
            assert run["artifacts"][place["index"]]["location"]["uri"] == place["uri"]


@pytest.mark.parametrize("command", ["verify", "check", "scan"])
@pytest.mark.parametrize("formats", [["--json", "--sarif"], ["--sarif", "--json"]])
def test_json_and_sarif_exclude_each_other(
    capsys: pytest.CaptureFixture[str], command: str, formats: list[str]
) -> None:
    assert main([command, "whole", *formats]) == 2
    shown = capsys.readouterr()
    assert '"runs"' not in shown.out
    assert "does not apply to --sarif" in shown.out + shown.err


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("x:y", "x%3Ay"),
        ("new\nline \x1b[31m", "new%0Aline%20%1B%5B31m"),
        ("\udcff?a#b%41", "%FF%3Fa%23b%2541"),
        ("ü://x", "%C3%BC%3A//x"),
        ("/a b", "file:///a%20b"),
        ("https://host:1/a%20b%zz%\udcff", "https://host:1/a%20b%25zz%25%FF"),
    ],
)
def test_any_path_is_a_valid_uri(path: str, uri: str) -> None:
    (run,) = json.loads(sarif_text("verify", [], [], about=[path]))["runs"]

    assert [each["location"]["uri"] for each in run["artifacts"]] == [uri]


def test_the_place_of_damage(capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", "bad ü", "--sarif"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]

    data = next(each for each in run["results"] if each["ruleId"] == "data")
    (location,) = data["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"].startswith("bad%20%C3%BC/model-00001-of-")
    assert location["physicalLocation"]["region"]["byteLength"] == 64
    assert location["logicalLocations"] == [{"fullyQualifiedName": "layers.0.weight", "kind": "tensor"}]
