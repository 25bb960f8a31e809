"""TensorFlow's checkpoints, as TensorFlow writes and reads them: every dtype, names, strings, parts, directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    SourceMissingError,
    TensorNotFoundError,
    UnsupportedError,
)
from tensorkeep.kinds.tensorflow import TensorBundle
from tests.contracts.kind import ARRAYS
from tests.support.formats.tensorflow_files import DTYPES, loaded_by_tensorflow, written_by_tensorflow

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
CHECKPOINTS = ("contract", "objects", "sharded", "dtypes", "tf1-part/model-7", "tf1-shards/model-7")
UNREADABLE = {"float4_e2m1fn"}


def opened(path: Path) -> TensorBundle:
    found = tensorkeep.open(path)
    assert isinstance(found, TensorBundle)
    return found


@pytest.fixture
def files() -> Path:
    return written_by_tensorflow()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_tensor_has_the_bits_that_tensorflow_reads(files: Path, name: str) -> None:
    expected = loaded_by_tensorflow(name)

    with opened(files / name) as bundle:
        assert {bundle.key_of(own) for own in (*bundle, *bundle.strings)} == set(expected)
        for own, lazy in bundle.items():
            _, shape, data = expected[bundle.key_of(own)]
            assert lazy.shape == shape
            if own not in UNREADABLE:
                assert lazy.load().tobytes() == data, own


def test_every_dtype_has_a_name(files: Path) -> None:
    with opened(files / "dtypes") as bundle:
        found = {name: bundle[name].dtype for name in DTYPES}
        metadata = bundle.metadata

    assert found == {
        "float32": "F32",
        "float64": "F64",
        "float16": "F16",
        "bfloat16": "BF16",
        "bool": "BOOL",
        "complex64": "C64",
        "complex128": "C128",
        "int8": "I8",
        "uint8": "U8",
        "int16": "I16",
        "uint16": "U16",
        "int32": "I32",
        "uint32": "U32",
        "int64": "I64",
        "uint64": "U64",
        "float8_e5m2": "F8_E5M2",
        "float8_e4m3fn": "F8_E4M3",
        "int4": "I8",
        "uint4": "U8",
        "int2": "I8",
        "uint2": "U8",
        "float4_e2m1fn": "float4_e2m1fn",
        "qint8": "I8",
        "quint8": "U8",
        "qint32": "I32",
    }
    assert json.loads(metadata["tensorflow.dtypes"]) == {
        name: name.removesuffix("_negative")
        for name in ("int2", "int4", "int4_negative", "qint32", "qint8", "quint8", "uint2", "uint4")
    }


def test_small_numbers_keep_their_signs(files: Path) -> None:
    with opened(files / "dtypes") as bundle:
        assert bundle["int4_negative"].load().tolist() == [[-4, -3, -2], [-1, 0, 1]]


def test_strings_are_data_of_their_own(files: Path) -> None:
    with opened(files / "dtypes") as bundle:
        assert sorted(bundle.strings) == ["no_text", "text"]
        assert "text" not in bundle
        assert bundle.strings["text"].load().tolist() == [[b"ab", b""], [b"\xff\x00", "é".encode() * 100]]
        assert bundle.strings["no_text"].load().shape == (0,)
        assert not bundle.is_replaceable


@pytest.mark.parametrize("name", [*CHECKPOINTS, "sliced", "managed", "exported", "module"])
def test_every_byte_is_verified(files: Path, name: str) -> None:
    found = tensorkeep.verify(files / name)

    assert found.findings == ()
    assert found.n_unprotected == 0
    assert found.n_checked == found.n_tensors


def test_damage_to_strings_is_found(files: Path, tmp_path: Path) -> None:
    path = copied(files, "dtypes", tmp_path)
    data = path.with_name("dtypes.data-00000-of-00001")
    content = data.read_bytes()
    at = content.index("é".encode() * 100)
    data.write_bytes(content[:at] + b"x" + content[at + 1 :])

    assert [finding.tensor for finding in tensorkeep.verify(path).findings] == ["text"]


def test_a_variable_is_found_by_every_path_of_objects(files: Path) -> None:
    with opened(files / "managed") as bundle:
        kernel = bundle["optimizer/_trainable_variables/0"]
        paths = ["model/_functional/_operations/1/_kernel", f"optimizer/_trainable_variables/0{SUFFIX}"]

        for path in paths:
            assert path in bundle
            assert bundle[path].name == path
            assert np.array_equal(bundle[path].load(), kernel.load())
            assert bundle.shard_of(path) == "ckpt-2.data-00000-of-00001"
        assert "model/_functional" not in bundle
        assert "model/_functional/_operations/9" not in bundle
        with pytest.raises(TensorNotFoundError):
            bundle["nothing"]


def test_variables_have_names_of_their_own(files: Path) -> None:
    with opened(files / "exported") as bundle:
        names = {name: own for name, own in bundle.variable_names.items() if name.startswith("variables/")}
        renamed = bundle.select("variables/*").rename(names)

        assert sorted(renamed) == [
            f"sequential/{layer}/{part}" for layer in ("d1", "dense") for part in ("bias", "kernel")
        ]
        assert json.loads(bundle.metadata["tensorflow.variables"])["variables/0"] == "sequential/d1/kernel"


def test_names_of_graphs_are_as_they_were_saved(files: Path) -> None:
    with opened(files / "tf1-part") as bundle:
        assert sorted(bundle) == ["b", "scope/w"]
        assert bundle.variable_names == bundle.metadata == {}
        assert not bundle.has_metadata


def test_a_tensor_in_parts_is_sliced_across_them(files: Path) -> None:
    whole = np.frombuffer(loaded_by_tensorflow("tf1-part/model-7")["scope/w"][2], np.float32).reshape(10, 4)

    with opened(files / "tf1-part") as bundle:
        assert np.array_equal(bundle["scope/w"][3:9:2, 1:], whole[3:9:2, 1:])


def test_a_program_s_directory_is_its_checkpoint(files: Path) -> None:
    for path in (files / "module", files / "module" / "saved_model.pb", files / "module/variables/variables"):
        with opened(path) as bundle:
            assert list(bundle) == ["w"]
            assert next(iter(bundle.sources)).endswith("variables.data-00000-of-00001")


def test_any_file_of_a_checkpoint_opens_it(files: Path) -> None:
    directory = files / "tf1-part"
    names = ("model-7", "model-7.index", "model-7.meta", "model-7.data-00000-of-00001")

    assert {opened(directory / name).path for name in names} == {str(directory / "model-7")}


def test_a_directory_is_its_latest_checkpoint(files: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(files / "managed", tmp_path / "managed")
    assert opened(directory).path == str(directory / "ckpt-2")
    state = directory / "checkpoint"

    state.write_text('model_checkpoint_path: "/where/it/was/saved/ckpt-1"\nall_model_checkpoint_paths: "x"\n')
    assert opened(directory).path == str(directory / "ckpt-1")
    state.write_text('model_checkpoint_path: "ckpt\\0551"\n')
    assert opened(directory).path == str(directory / "ckpt-1")
    state.write_text('model_checkpoint_path: "gone"\n')
    with pytest.raises(SourceMissingError, match="gone"):
        tensorkeep.open(directory)
    for text in ("", 'model_checkpoint_path: "../outside/ckpt"', 'all_model_checkpoint_paths: "ckpt-1"', "\xff\0"):
        state.write_text(text)
        with pytest.raises(FormatError, match="checkpoint"):
            tensorkeep.open(directory)
    state.unlink()
    with pytest.raises(UnsupportedError, match=r"ckpt-1, ckpt-2.*Open one of them"):
        tensorkeep.open(directory)
    for file in directory.glob("ckpt-2*"):
        file.unlink()
    assert opened(directory).path == str(directory / "ckpt-1")


def test_a_checkpoint_of_the_first_format_is_refused_by_name(files: Path) -> None:
    for target in (files / "tf1-first/model-7", (files / "contract.index").read_bytes()):
        with pytest.raises(UnsupportedError, match="first format"):
            tensorkeep.open(target)
    with pytest.raises(UnsupportedError, match="first format"):
        tensorkeep.open(copied_as(files / "tf1-first/model-7", files / "tf1-first/again.index"))


def test_missing_and_truncated_files_are_named(files: Path, tmp_path: Path) -> None:
    path = copied(files, "sharded", tmp_path)
    second = tmp_path / "sharded.data-00001-of-00002"
    second.write_bytes(second.read_bytes()[:-1])

    with pytest.raises(IntegrityError, match=r"sharded\.data-00001-of-00002"):
        tensorkeep.open(path)
    found = tensorkeep.verify(path)
    assert [(finding.kind, finding.shard) for finding in found.findings] == [("truncated", second.name)]

    second.unlink()
    with pytest.raises(SourceMissingError, match=r"sharded\.data-00001-of-00002"):
        tensorkeep.open(path)
    assert [finding.kind for finding in tensorkeep.verify(path).findings] == ["missing"]
    with pytest.raises(SourceMissingError, match="nothing"):
        tensorkeep.open(tmp_path / "nothing")


def test_a_missing_file_with_parts_of_tensors_is_named(files: Path, tmp_path: Path) -> None:
    path = copied(files, "sliced", tmp_path)
    data = tmp_path / "sliced.data-00000-of-00001"
    data.unlink()

    with pytest.raises(SourceMissingError, match=data.name):
        tensorkeep.open(path)
    assert [(finding.kind, finding.shard) for finding in tensorkeep.verify(path).findings] == [("missing", data.name)]


def test_a_frozen_program_has_no_variables(files: Path, tmp_path: Path) -> None:
    shutil.copy(files / "module/saved_model.pb", tmp_path)

    with pytest.raises(SourceMissingError, match="no variables"):
        tensorkeep.open(tmp_path)


def test_conversion_keeps_metadata_and_says_what_it_leaves_out(files: Path, tmp_path: Path) -> None:
    done = tensorkeep.convert(files / "managed", tmp_path / "converted")

    assert done.n_tensors == 16
    with tensorkeep.open(tmp_path / "converted") as converted:
        assert json.loads(converted.metadata["tensorflow.variables"])["step"] == "Variable"
    assert tensorkeep.diff(files / "managed", tmp_path / "converted").is_equal


def test_parts_of_it_are_loaded(files: Path) -> None:
    loaded = tensorkeep.load(files / "managed", only="optimizer/_variables/*")

    assert sorted(loaded) == [f"optimizer/_variables/{place}" for place in range(2, 10)]


def test_it_is_for_torch_too(files: Path) -> None:
    with tensorkeep.open(files / "sliced", framework="torch") as bundle:
        assert bundle["layers.2.weight"][1:3].tolist() == ARRAYS["layers.2.weight"][1:3].tolist()


def test_it_survives_pickling_between_processes(files: Path) -> None:
    import pickle

    with opened(files / "tf1-part") as bundle:
        lazy: Any = pickle.loads(pickle.dumps(bundle["scope/w"]))
        assert np.array_equal(lazy.load(), bundle["scope/w"].load())


def copied(files: Path, name: str, directory: Path) -> Path:
    for file in files.glob(f"{name}.*"):
        shutil.copy(file, directory)
    return directory / name


def copied_as(path: Path, target: Path) -> Path:
    return Path(shutil.copy(path, target))
