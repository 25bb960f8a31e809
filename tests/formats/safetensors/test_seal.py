"""The digests in a header: no byte of it can change unseen, and none of it gets in a reader's way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from blake3 import blake3

import tensorkeep
from tensorkeep.digests import NO_DIGEST
from tensorkeep.errors import HeaderError, IntegrityError, TensorkeepError, UnsupportedError
from tensorkeep.formats.safetensors import SEAL_KEY, STATE_KEY, emit_header, emit_sealed_header, lay_out, without_seal
from tensorkeep.kinds.safetensors import open_file

TENSORS = {
    "b": np.arange(3, dtype=np.uint8),
    "empty": np.zeros((0, 4), np.float32),
    "é w": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
    "x": np.array([1, 2], ml_dtypes.bfloat16),
}


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    tensorkeep.save(TENSORS, path, metadata={"made by": 'a "hand"', "zz": "0" * 64})
    return path


def test_a_header_has_the_digest_of_each_tensor_and_of_itself(sealed: Path) -> None:
    content = sealed.read_bytes()
    with open_file(sealed) as file:
        seal, start, names = file.seal, file.data_start, list(file)
        digests = {name: file[name].digest for name in names}

    assert seal is not None
    assert digests == {name: blake3(array.tobytes()).digest() for name, array in TENSORS.items()}
    assert seal.tensor_digests() == [digests[name] for name in names]
    zeroed = content[:start].replace(seal.digest.encode(), b"0" * 64, 1)
    assert blake3(zeroed).hexdigest() == seal.digest


def test_the_reference_reads_every_tensor(sealed: Path) -> None:
    plain = {name: array for name, array in TENSORS.items() if name != "x"}
    tensorkeep.save(plain, sealed)
    loaded = safetensors.numpy.load_file(sealed)

    assert loaded.keys() == plain.keys()
    assert all(np.array_equal(loaded[name], array) for name, array in plain.items())


def test_no_byte_before_the_data_can_change_unseen(sealed: Path) -> None:
    content = bytearray(sealed.read_bytes())
    with open_file(sealed) as file:
        n_head = file.data_start
    for place in range(n_head):
        for flip in (0x01, 0x20, 0x80):
            content[place] ^= flip
            with pytest.raises(TensorkeepError):
                open_file(bytes(content))
            content[place] ^= flip

    assert open_file(bytes(content)).seal is not None


@pytest.mark.parametrize("key", ["tensorkeeq", "Tensorkeep", ""])
def test_a_seal_under_another_key_is_damage(key: str) -> None:
    head = emit_sealed_header({}, None, [])
    seal = tensorkeep.open(head).seal
    assert seal is not None
    text = open_raw_metadata(head)[SEAL_KEY]
    file = safetensors.numpy.save({}, {key: text})

    with pytest.raises(IntegrityError, match="the digests in the header are damaged"):
        tensorkeep.open(file)
    assert dict(tensorkeep.open(file, check=False)) == {}


def open_raw_metadata(content: bytes) -> dict[str, str]:
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


def test_a_later_version_is_named_and_still_read_flat() -> None:
    content = emit_sealed_header({}, None, []).replace(rb'"{\"tensorkeep\":1', rb'"{\"tensorkeep\":7')

    with pytest.raises(UnsupportedError, match=r"expected version 1, found version 7.*check=False"):
        tensorkeep.open(content)
    assert len(tensorkeep.open(content, check=False)) == 0


def test_digests_of_another_file_are_refused(sealed: Path, tmp_path: Path) -> None:
    metadata = open_raw_metadata(sealed.read_bytes())
    other = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"b": np.arange(4)}, other, metadata)

    with pytest.raises(IntegrityError, match=r"not the one that was written.*another program changed it"):
        tensorkeep.open(other)
    with pytest.raises(IntegrityError, match=str(other)):
        tensorkeep.open(other)
    assert tensorkeep.open(other, check=False)["b"][3] == 3


def test_the_wrong_number_of_digests_is_refused() -> None:
    entries = lay_out({"w": (tensorkeep.dtypes.BY_NAME["U8"], (1,), 1)})
    head = emit_sealed_header(entries, None, [b"x" * 32, b"y" * 32])

    with pytest.raises(IntegrityError, match="does not have one digest per tensor"):
        tensorkeep.open(head + b"\1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda digits: "*" + digits[1:], "the digests in the header are damaged.*not base64"),
        (lambda digits: digits[:-1] + "A", "does not have one digest per tensor"),
        (lambda digits: digits[:-2] + "==", "the digests in the header are damaged.*not base64"),
        (lambda digits: digits + "AAAA", "does not have one digest per tensor"),
        (lambda digits: "", "does not have one digest per tensor"),
    ],
    ids=["strange", "unpadded", "short", "long", "none"],
)
def test_digests_that_cannot_be_decoded_are_refused_when_the_file_is_opened(
    change: Callable[[str], str], message: str
) -> None:
    entries = lay_out({"w": (tensorkeep.dtypes.BY_NAME["U8"], (1,), 1)})
    metadata = open_raw_metadata(emit_sealed_header(entries, None, [b"x" * 32]))
    seal = json.loads(metadata[SEAL_KEY])
    seal |= {"tensors": change(seal["tensors"]), "digest": NO_DIGEST}
    head = emit_header(entries, {SEAL_KEY: json.dumps(seal, separators=(",", ":"))})
    signed = head.replace(NO_DIGEST.encode(), blake3(head).hexdigest().encode(), 1)

    with pytest.raises(IntegrityError, match=message):
        tensorkeep.open(signed + b"\1")


def test_a_seal_is_not_carried_into_another_file(sealed: Path, tmp_path: Path) -> None:
    metadata = open_raw_metadata(sealed.read_bytes())
    other = tmp_path / "other.safetensors"
    tensorkeep.save({"w": np.ones(2)}, other, metadata=metadata)
    first = tensorkeep.open(other)
    tensorkeep.save({"w": np.ones(2)}, other, metadata=metadata, digests=False)

    assert first.seal is not None
    assert tensorkeep.open(other).seal is None
    of_one_file = {SEAL_KEY, STATE_KEY}
    assert tensorkeep.open(other).metadata == {key: text for key, text in metadata.items() if key not in of_one_file}
    assert without_seal(None) is None


def test_people_s_metadata_is_what_they_see(sealed: Path) -> None:
    assert tensorkeep.open(sealed).metadata == {"made by": 'a "hand"', "zz": "0" * 64, "format": "pt"}


def test_equal_input_gives_equal_bytes_with_digests_too(sealed: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    tensorkeep.save(dict(TENSORS.items()), again, metadata={"zz": "0" * 64, "made by": 'a "hand"'})

    assert again.read_bytes() == sealed.read_bytes()


def test_a_header_that_is_cut_is_still_named_as_such(sealed: Path) -> None:
    with pytest.raises(HeaderError, match="5 bytes short"):
        tensorkeep.open(sealed.read_bytes()[:-5])


@pytest.mark.parametrize("digests", [True, False])
@pytest.mark.parametrize("metadata", [{"tensorkeep": "hello"}, {"x": '{"tensorkeep":1'}, {"a": '{"tensorkeep":'}])
def test_what_would_be_taken_for_a_seal_is_refused(metadata: dict[str, str], digests: bool, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="looks like the digests"):
        tensorkeep.save(TENSORS, tmp_path / "model.safetensors", metadata=metadata, digests=digests)
    assert list(tmp_path.iterdir()) == []
