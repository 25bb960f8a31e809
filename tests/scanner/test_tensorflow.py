"""Programs of TensorFlow: what computes is clean, what reads, writes, lists or runs Python is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import joblib
import pytest
from onnx import TensorProto

import tensorkeep
from tensorkeep.formats.tensorflow.programs import COMPUTING
from tests.support.formats.tensorflow_files import written_by_tensorflow

SAVER = "SaveV2"


@pytest.fixture
def files() -> Path:
    return written_by_tensorflow()


@pytest.mark.parametrize(
    "name",
    ["contract.index", "managed", "exported", "module", "prints", "tf1-part", "tf1-shards", "frozen.pb"],
)
def test_what_only_computes_saves_and_restores_is_clean(files: Path, name: str) -> None:
    report = tensorkeep.scan(files / name)

    assert report.verdict == "clean", report
    assert all(file.form for file in report.files)


@pytest.mark.parametrize(
    ("name", "operator", "deed"),
    [
        ("reads", "ReadFile", "reads a file"),
        ("writes", "WriteFile", "writes a file"),
        ("lists", "MatchingFiles", "lists the names of files"),
        ("python", "EagerPyFunc", "calls a Python function"),
    ],
)
def test_deeds_are_named_with_their_place(files: Path, name: str, operator: str, deed: str) -> None:
    (finding,) = [finding for file in tensorkeep.scan(files / name).files for finding in file.findings]

    assert finding.severity == "suspicious"
    assert finding.message.startswith(f"the operator {operator} {deed}")
    assert f": `{operator}` of function" in finding.message
    assert finding.position is not None
    content = (files / name / "saved_model.pb").read_bytes()
    assert operator.encode() in content[finding.position : finding.position + 100]


def node(name: str, operator: str, *inputs: str, text: bytes | None = None, key: str = "value") -> bytes:
    fields = [(1, name.encode()), (2, operator.encode()), *((3, each.encode()) for each in inputs)]
    if text is not None:
        value = message((8, message((8, text)))) if key == "value" else message((2, text))
        fields.append((5, message((1, key.encode()), (2, value))))
    return message(*fields)


def message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bytes([number << 3 | 2]) + length(len(value)) + value for number, value in fields)


def length(nbytes: int) -> bytes:
    found = b""
    while nbytes > 127:
        found += bytes([nbytes & 127 | 128])
        nbytes >>= 7
    return found + bytes([nbytes])


def messages_of(directory: Path, *nodes: bytes, assets: tuple[tuple[str, str], ...] = ()) -> list[str]:
    graph = message(*((1, each) for each in nodes))
    named = [(6, message((1, message((1, f"{of}:0".encode()))), (2, file.encode()))) for of, file in assets]
    path = directory / "saved_model.pb"
    path.write_bytes(b"\x08\x01" + message((2, message((2, graph), *named))))
    (file,) = tensorkeep.scan(path).files
    return [finding.message for finding in file.findings]


def test_a_saver_may_not_name_its_file_itself(tmp_path: Path) -> None:
    hidden = [
        [node("f", "Const", text=b"/etc/cron.d/x")],
        [node("c", "Const", text=b"/etc/x"), node("f", "Identity", "c:0")],
        [node("c", "Const", text=b"/etc/x"), node("f", "PlaceholderWithDefault", "c")],
        [node("p", "Placeholder"), node("c", "Const", text=b"/../../x"), node("f", "StringJoin", "p", "c")],
        [node("c", "Const", text=b"/x"), node("p", "Placeholder"), node("f", "StringJoin", "c", "p")],
        [node("f", "Pack", "^p"), node("p", "Placeholder"), node("g", "Const", text=b"/x")],
        [node("f", "Identity", "f")],
        [],
    ]
    for nodes in hidden[:5] + hidden[6:]:
        (text,) = messages_of(tmp_path, *nodes, node("s", SAVER, "f"))
        assert text.startswith("the operator SaveV2 writes a file that the program names")
    given = [node("p", "Placeholder"), node("c", "Const", text=b".part"), node("f", "StringJoin", "p", "c")]
    assert messages_of(tmp_path, *given, node("s", SAVER, "f")) == []
    default = [node("c", "Const", text=b"model"), node("f", "PlaceholderWithDefault", "c")]
    assert messages_of(tmp_path, *default, node("s", SAVER, "f")) == []


def test_a_vocabulary_is_read_from_the_model_s_own_files(tmp_path: Path) -> None:
    table = node("t", "InitializeTableFromTextFileV2", "h", "v")
    vocabulary = node("v", "Const", text=b"words.txt")

    assert messages_of(tmp_path, vocabulary, table, assets=(("v", "words.txt"),)) == []
    (text,) = messages_of(tmp_path, vocabulary, table)
    assert "InitializeTableFromTextFileV2 reads a file that the program names" in text
    (text,) = messages_of(tmp_path, vocabulary, table, assets=(("v", "../../etc/passwd"),))
    assert "outside its directory" in text


def test_a_variable_that_names_a_file_may_not_be_changed_elsewhere(tmp_path: Path) -> None:
    honest = [
        node("v", "VarHandleOp", text=b"path", key="shared_name"),
        node("p", "Placeholder"),
        node("a", "AssignVariableOp", "v", "p"),
        node("f", "ReadVariableOp", "v", "^a"),
        node("s", SAVER, "f"),
    ]
    evil = [
        node("w", "VarHandleOp", text=b"path", key="shared_name"),
        node("c", "Const", text=b"/etc/x"),
        node("b", "AssignVariableOp", "w", "c"),
    ]

    assert messages_of(tmp_path, *honest) == []
    assert len(messages_of(tmp_path, *honest, *evil)) == 1


def test_a_function_may_not_name_its_file_through_what_it_was_saved_with(tmp_path: Path) -> None:
    function = message((1, message((1, b"f"), (2, message((1, b"path"))))), (3, node("s", SAVER, "path")))
    objects = [(1, message((5, b""))), (1, message((9, b"")))]
    path = tmp_path / "saved_model.pb"

    def verdict(bound: bytes) -> str:
        called = message((1, b"f"), (2, message((2, bound))))
        graph = message((2, message((1, function))))
        path.write_bytes(b"\x08\x01" + message((2, message((2, graph), (7, message(*objects, (2, called)))))))
        return tensorkeep.scan(path).verdict

    assert verdict(b"") == "clean"
    assert verdict(b"\0") == "clean"  # a file of the model
    assert verdict(b"\1") == "unknown"
    assert verdict(b"\2") == "unknown"


def test_each_name_of_a_file_is_looked_at(tmp_path: Path) -> None:
    twice = (("v", "../../etc/passwd"), ("v", "words.txt"))
    (text,) = messages_of(tmp_path, node("v", "Const", text=b"words.txt"), assets=twice)
    assert "outside its directory" in text


@pytest.mark.parametrize("unknown", [b"\x78\x01", b"\xfa\x07\x01x", b"\x08\x01", b"\x15abcd"])
@pytest.mark.parametrize("name", ["saved_model.pb", "my_fingerprint.pb", "x_keras_metadata.pb"])
def test_fields_that_nobody_knows_hide_nothing(files: Path, tmp_path: Path, name: str, unknown: bytes) -> None:
    content = (files / "writes" / "saved_model.pb").read_bytes()
    for changed in (content + unknown, unknown + content):
        (tmp_path / name).write_bytes(changed)
        (file,) = tensorkeep.scan(tmp_path).files
        assert any("WriteFile writes a file" in finding.message for finding in file.findings)


@pytest.mark.parametrize("unread", [b"\x7b\x7c", b"\x78" + b"\xff" * 9 + b"\x02"])
def test_what_tensorflow_passes_over_and_the_scan_cannot_is_not_clean(
    files: Path, tmp_path: Path, unread: bytes
) -> None:
    content = (files / "module" / "saved_model.pb").read_bytes()
    (tmp_path / "other.pb").write_bytes(content + unread)
    assert tensorkeep.scan(tmp_path).verdict == "unreadable"


def test_a_fingerprint_is_no_program(files: Path, tmp_path: Path) -> None:
    (file,) = tensorkeep.scan(files / "module" / "fingerprint.pb").files
    assert (file.form, file.verdict) == ("TensorFlow fingerprint", "clean")

    program = tmp_path / "fingerprint.pb"
    shutil.copy(files / "writes" / "saved_model.pb", program)
    (file,) = tensorkeep.scan(program).files
    assert file.form == "TensorFlow program"
    assert any("WriteFile writes a file" in finding.message for finding in file.findings)


def test_other_messages_are_no_programs(files: Path, tmp_path: Path) -> None:
    shutil.copy(files / "module" / "saved_model.pb", tmp_path)
    for name in ("tensor.pb", "x.meta"):
        (tmp_path / name).write_bytes(TensorProto(dims=[1], data_type=1, raw_data=bytes(4)).SerializeToString())
    (tmp_path / "y.meta").write_text("fileFormatVersion: 2")
    report = tensorkeep.scan(tmp_path)
    assert report.verdict == "clean"
    assert report.n_skipped == 3


def test_unknown_operators_and_other_streams_are_reported(tmp_path: Path) -> None:
    (text,) = messages_of(tmp_path, node("x", "MyOwnOperator"), node("y", "MyOwnOperator"))
    assert text == "the operator MyOwnOperator is not known to only compute: `x` and 1 more"
    (text,) = messages_of(tmp_path, node("x", "PrintV2", text=b"file:///tmp/x", key="output_stream"))
    assert "writes a file" in text


def test_code_of_keras_layers_is_reported(tmp_path: Path) -> None:
    config = json.dumps({"class_name": "Lambda", "config": {"function": ["4wE=", None, None]}})
    path = tmp_path / "keras_metadata.pb"
    path.write_bytes(message((1, message((3, b"root.layer"), (4, b"_tf_keras_layer"), (5, config.encode())))))

    (file,) = tensorkeep.scan(path).files
    assert any("Lambda" in finding.message for finding in file.findings)


def test_text_and_damage_are_no_clean_programs(files: Path, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pbtxt").write_text("saved_model_schema_version: 1")
    assert tensorkeep.scan(tmp_path).verdict == "unknown"
    (tmp_path / "saved_model.pbtxt").rename(tmp_path / "saved_model.cpb")
    assert tensorkeep.scan(tmp_path).verdict == "unknown"

    content = (files / "writes" / "saved_model.pb").read_bytes()
    path = tmp_path / "cut" / "saved_model.pb"
    path.parent.mkdir()
    for nbytes in (len(content) - 1, len(content) // 2, 100):
        path.write_bytes(content[:nbytes])
        assert tensorkeep.scan(path).verdict != "clean"


def test_no_operator_that_touches_files_counts_as_computing() -> None:
    words = ("File", "Debug", "PyFunc", "Rpc", "Save", "Restore", "Summarywriter", "Dataset")

    assert {name for name in COMPUTING if any(word in name for word in words)} == {
        "DebugGradientIdentity",
        "DebugGradientRefIdentity",
        "ShardedFilename",
    }


@pytest.mark.parametrize("name", ["model.data-00000-of-00001", "d/" + "0" * 32, "_METADATA"])
def test_what_is_known_by_its_name_alone_may_not_be_compressed(tmp_path: Path, name: str) -> None:
    (tmp_path / "manifest.ocdbt").write_bytes(b"\x0c\xdb")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(100))
    assert tensorkeep.scan(tmp_path).verdict == "clean"

    joblib.dump(print, path, compress=("gzip", 3))
    assert joblib.load(path) is print
    assert tensorkeep.scan(tmp_path).verdict == "unreadable"


def test_a_function_may_not_name_its_file_by_a_default(files: Path) -> None:
    assert tensorkeep.scan(files / "default-usual").verdict == "clean"
    for name in ("default-text", "default-tensor"):
        (finding,) = tensorkeep.scan(files / name).findings
        assert "RestoreV2 reads a file that the program names" in finding.message
