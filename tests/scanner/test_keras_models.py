"""What scan says of the configurations of Keras models, among them those of known attacks."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.scanner import Verdict

CLEAN: list[Any] = [
    {"module": "keras.layers", "class_name": "Dense", "config": {"activation": "relu"}, "registered_name": None},
    {"module": "builtins", "class_name": "function", "config": "mean_squared_error", "registered_name": "function"},
    {"module": "keras.activations", "class_name": "function", "config": "gelu"},
    {"module": "keras.src.ops.numpy", "class_name": "function", "config": "mean"},
    {"module": "keras", "class_name": "__tensor__", "config": {"value": 1.0, "dtype": "float32"}},
    {"module": "keras.layers", "class_name": "StringLookup", "config": {"vocabulary": ["a", "b"]}},
    {"module": "tensorflow.python.framework.tensor", "class_name": "__typespec__", "spec_name": "TensorSpec"},
    {"module": "tensorflow.keras.layers", "class_name": "Dense", "config": {}},
    {"class_name": "TFOpLambda", "config": {"function": "math.multiply"}},
    {"class_name": "TFOpLambda", "config": {"function": "cast"}},
]

FOUND: list[tuple[Any, str]] = [
    # CVE-2025-1550: any module is imported, and any function called.
    ({"module": "builtins", "class_name": "function", "config": "exec", "registered_name": "function"}, "exec"),
    ({"module": "os", "class_name": "function", "config": "system", "registered_name": "function"}, "os.system"),
    ({"module": "my_model.layers", "class_name": "Attention", "config": {}}, "my_model.layers.Attention"),
    # CVE-2025-8747: functions of Keras that write files.
    ({"module": "keras.utils", "class_name": "function", "config": "get_file"}, "get_file"),
    ({"module": "keras.utils", "class_name": "get_file", "config": {"origin": "http://a"}}, "get_file"),
    ({"module": "keras.saving", "class_name": "function", "config": "load_model"}, "load_model"),
    # CVE-2025-9906: the safe mode is switched off by the model itself.
    (
        {"module": "keras.config", "class_name": "function", "config": "enable_unsafe_deserialization"},
        "enable_unsafe_deserialization",
    ),
    # CVE-2025-9905 and CVE-2024-3660: code of a Lambda layer, whatever the safe mode.
    ({"class_name": "Lambda", "config": {"function": ["4wAA", None, None], "function_type": "lambda"}}, "Lambda"),
    ({"class_name": "Other", "config": {"function": ["4wAA", None, None], "function_type": "lambda"}}, "Lambda"),
    (
        {"module": "keras.layers", "class_name": "Dense", "config": {"activation": {"class_name": "__lambda__"}}},
        "code",
    ),
    # CVE-2025-49655: a pickle in the configuration.
    ({"module": "keras.layers", "class_name": "TorchModuleWrapper", "config": {}}, "unpickles"),
    # CVE-2025-12058: a path to read, or a URL to ask.
    (
        {"module": "keras.layers", "class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}},
        "/etc/passwd",
    ),
    ({"module": "keras_hub.tokenizers", "class_name": "BytePairTokenizer", "config": {"merges": "/etc/x"}}, "/etc/x"),
    ({"class_name": "VocabularyFileCategoricalColumn", "config": {"vocabulary_file": "/etc/x"}}, "/etc/x"),
    ({"class_name": "TFOpLambda", "config": {"function": "io.write_file"}}, "tf.io.write_file"),
    # Functions of TensorFlow that a functional model calls with arguments of its own.
    (
        {"module": "tensorflow.python.ops.io_ops", "class_name": "function", "config": "write_file"},
        "tensorflow.python.ops.io_ops.write_file",
    ),
    ({"module": "tensorflow.random", "class_name": "Other", "config": {}}, "tensorflow.random.Other"),
    ({"class_name": "TFOpLambda", "config": {"function": "py_function"}}, "tf.py_function"),
    ({"module": None, "class_name": "L", "config": {}, "registered_name": "mine>L"}, "mine>L"),
    ({"module": "builtins", "class_name": "function", "config": "mine>act"}, "mine>act"),
]


def messages(path: Path) -> list[str]:
    return [finding.message for file in tensorkeep.scan(path).files for finding in file.findings]


def save_archive(path: Path, layer: Any) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": [layer]}}))


def save_hdf5(path: Path, name: str, layer: Any) -> None:
    with h5py.File(path, "w") as file:
        file.attrs[name] = json.dumps({"class_name": "Sequential", "config": {"layers": [layer]}})


@pytest.mark.parametrize("place", range(len(CLEAN)))
def test_parts_of_keras_are_passed_over(place: int, tmp_path: Path) -> None:
    save_archive(tmp_path / "a.keras", CLEAN[place])

    assert messages(tmp_path / "a.keras") == []


@pytest.mark.parametrize("place", range(len(FOUND)))
def test_what_keras_would_run_is_found(place: int, tmp_path: Path) -> None:
    layer, text = FOUND[place]
    save_archive(tmp_path / "a.keras", layer)
    save_hdf5(tmp_path / "b.h5", "model_config", layer)
    save_hdf5(tmp_path / "c.h5", "training_config", layer)
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.write(tmp_path / "b.h5", "inner.h5")

    for name in ("a.keras", "b.h5", "c.h5", "d.zip"):
        assert any(text in message for message in messages(tmp_path / name)), name


@pytest.mark.parametrize(("name", "verdict"), [("exec", "dangerous"), ("Lambda", "unknown")])
def test_only_what_can_do_nothing_but_harm_is_dangerous(name: str, verdict: Verdict, tmp_path: Path) -> None:
    layer = next(layer for layer, text in FOUND if text == name)
    save_archive(tmp_path / "a.keras", layer)

    assert tensorkeep.scan(tmp_path / "a.keras").verdict == verdict


def test_a_configuration_that_is_not_a_text_is_not_passed_over(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["model_config"] = [1, 2]

    assert any("not a text" in message for message in messages(tmp_path / "a.h5"))


def test_a_configuration_that_ends_early_for_hdf5_is_found(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["model_config"] = np.bytes_(b'{"class_name": "Lambda"}\0more')

    assert any("Lambda" in message for message in messages(tmp_path / "a.h5"))


@pytest.mark.parametrize("name", ["architecture.json", "model", "net.txt"])
@pytest.mark.parametrize("start", ["", " " * 70_000])
def test_model_from_json_takes_a_text_under_any_name(name: str, start: str, tmp_path: Path) -> None:
    layer = {"class_name": "Lambda", "config": {}}
    text = json.dumps({"config": {"layers": [layer]}, "class_name": "Sequential"})
    (tmp_path / name).write_text(start + text.replace("class", "\\u0063lass"))
    assert any("Lambda" in message for message in messages(tmp_path))

    (tmp_path / name).write_text(json.dumps({"layers": [layer], "version": 1}))  # no object of Keras
    assert messages(tmp_path) == []
