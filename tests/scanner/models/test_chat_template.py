"""`scan` of chat templates beside weights, in configurations and in files of their own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep

PLAIN = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}{% endfor %}"
EVIL = "{{ cycler.__init__.__globals__.os.popen('id') }}"
FORMS: dict[str, Any] = {
    "text": lambda template: template,
    "list": lambda template: [{"name": "default", "template": PLAIN}, {"name": "tool_use", "template": template}],
    "dict": lambda template: {"default": PLAIN, "tool_use": template},
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tensorkeep.save({"w": np.ones(3, np.float32)}, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["tokenizer_config.json", "processor_config.json", "chat_template.json"])
def test_configurations_are_looked_into(model: Path, name: str, form: str) -> None:
    (model / name).write_text(json.dumps({"model_max_length": 3, "chat_template": FORMS[form](PLAIN)}))
    report = tensorkeep.scan(model)
    assert report.verdict == "clean"
    assert {file.form for file in report.files} == {"safetensors", "chat template"}

    (model / name).write_text(json.dumps({"chat_template": FORMS[form](EVIL)}))
    messages = [finding.message for finding in tensorkeep.scan(model).findings]
    assert messages
    assert all("chat template" in message for message in messages)
    assert all(message.endswith("(tool_use)") == (form != "text") for message in messages)


def test_files_of_their_own_are_looked_into(model: Path) -> None:
    (model / "additional_chat_templates").mkdir()
    for path in (model / "chat_template.jinja", model / "additional_chat_templates" / "rag.jinja"):
        path.write_text(PLAIN)
        assert tensorkeep.scan(model).verdict == "clean"
        path.write_text(EVIL)
        assert tensorkeep.scan(model).verdict == "unknown"
        path.unlink()


def test_templates_in_archives_are_looked_into(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("model/chat_template.jinja", EVIL)

    assert tensorkeep.scan(tmp_path).verdict == "unknown"


@pytest.mark.parametrize(
    "text", ["{}", "[]", "{", '{"chat_template": null}', '{"chat_template": [1, {"template": 2}]}']
)
def test_configurations_without_a_template_are_other_files(model: Path, text: str) -> None:
    (model / "tokenizer_config.json").write_text(text)
    report = tensorkeep.scan(model)
    assert report.verdict == "clean"
    assert report.n_skipped == 1


def test_what_is_too_deep_is_not_clean(model: Path) -> None:
    (model / "tokenizer_config.json").write_text('{"chat_template":' + "[" * 100_000)
    assert tensorkeep.scan(model).verdict == "unreadable"
