"""The index: transformers' bytes, a digest that any change breaks, and nothing but our errors for any other bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import save_torch_state_dict
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertModel

from tensorkeep.digests import digest_of
from tensorkeep.errors import (
    FormatError,
    IndexFileError,
    IntegrityError,
    LimitError,
    TensorkeepError,
    UnsupportedError,
)
from tensorkeep.layout import Index, ShardRecord, _index, emit_index, parse_index
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.paths import is_inside

PATH = "ckpt/model.safetensors.index.json"
A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
RECORDS = {A: ShardRecord(1000, "0a" * 32), B: ShardRecord(88, "0b" * 32, "0c" * 32)}
OURS = Index(
    {"a.weight": A, "b[0:2]": A, "b[2:3]": B},
    {"format": "pt", "total_parameters": 7, "total_size": 28},
    RECORDS,
    {"b": ("b[0:2]", "b[2:3]")},
)
FOREIGN = {"metadata": {"total_size": 28}, "weight_map": {"a.weight": A, "b": B}}


def text_of(document: object) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True).encode() + b"\n"


def sealed(document: dict) -> bytes:
    """Give a changed index the digest that is true of it, as somebody who means harm would."""
    document["metadata"]["tensorkeep"]["digest"] = "0" * 64
    zeros = text_of(document)
    return zeros.replace(b"0" * 64, digest_of(zeros).hex().encode(), 1)


def changed(**section: object) -> bytes:
    document = json.loads(emit_index(OURS))
    document["metadata"]["tensorkeep"] |= section
    return sealed(document)


tensor_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | tensor_names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tensor_names, inner, max_size=3),
    max_leaves=8,
)
metadata = st.dictionaries(tensor_names.filter(lambda key: key != "tensorkeep"), json_values, max_size=4)
weight_maps = st.dictionaries(tensor_names, st.sampled_from([A, B, "sub/é~x.safetensors"]), max_size=6)


@given(weight_map=weight_maps, metadata=metadata, is_ours=st.booleans())
def test_an_index_comes_back_from_the_bytes_that_transformers_would_write(
    weight_map: dict[str, str], metadata: dict, is_ours: bool
) -> None:
    records = {file: ShardRecord(len(file), "ab" * 32) for file in weight_map.values()} if is_ours else None
    index = Index(weight_map, metadata, records)

    text = emit_index(index)

    assert text == text_of(json.loads(text))
    assert parse_index(text, PATH) == index
    if not is_ours:
        assert text == text_of({"metadata": metadata, "weight_map": weight_map})


def test_what_is_ours_stands_under_one_key() -> None:
    document = json.loads(emit_index(OURS))
    section = document["metadata"].pop("tensorkeep")

    assert document == {"metadata": OURS.metadata, "weight_map": OURS.weight_map}
    assert section == {
        "digest": section["digest"],
        "shards": {
            A: {"header": "0a" * 32, "nbytes": 1000},
            B: {"header": "0b" * 32, "nbytes": 88, "sha256": "0c" * 32},
        },
        "splits": {"b": ["b[0:2]", "b[2:3]"]},
        "version": 1,
    }
    zeros = emit_index(OURS).replace(section["digest"].encode(), b"0" * 64)
    assert section["digest"] == digest_of(zeros).hex()


def test_the_index_of_a_transformers_model_is_read_and_written_again(tmp_path: Path) -> None:
    model = BertModel(
        BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    )
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    text = (tmp_path / "model.safetensors.index.json").read_bytes()

    index = parse_index(text, str(tmp_path))

    assert set(index.weight_map) == set(model.state_dict())
    assert all((tmp_path / file).is_file() for file in index.files)
    assert len(index.files) > 2
    assert set(index.metadata) == {"total_parameters", "total_size"}
    assert index.shards is None
    assert emit_index(index) == text


def test_the_index_of_huggingface_hub_is_read(tmp_path: Path) -> None:
    tensors = {f"layer.{number}": torch.ones(10) for number in range(4)}
    save_torch_state_dict(tensors, tmp_path, max_shard_size=80)

    index = parse_index((tmp_path / "model.safetensors.index.json").read_bytes(), str(tmp_path))

    assert list(index.weight_map) == list(tensors)
    assert index.metadata["total_size"] == 160
    assert index.files == (A, B)


@pytest.mark.parametrize(
    "text",
    [
        b'{"weight_map":{"a":"x"}}',
        b'{"weight_map":{"a":"x"},"metadata":null}',
        b'{"weight_map":{"a":"x"},"metadata":{}}',
        b'\r\n{ "other" : {"weight_map":[{"a:":1}]} ,\t"weight_map":{"\\u0061":"x"}}',
        b'{"weight_map":{"a":"x"},"other":1234567890123456789012345678901234567890}',
    ],
)
def test_others_may_write_it_otherwise(text: bytes) -> None:
    assert parse_index(text, PATH) == Index({"a": "x"})


def test_names_with_colons_and_escapes_are_names() -> None:
    names = {'"a":': "x", "é:\\u003a": "x", ":": "xyz", "a\n": "x"}

    assert parse_index(text_of({"weight_map": names}), PATH).weight_map == names


# --- damage


def test_every_flipped_bit_is_seen() -> None:
    text = emit_index(OURS)
    for place in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[place] ^= 1 << bit
            with pytest.raises((FormatError, IntegrityError, UnsupportedError)):
                parse_index(bytes(flipped), PATH)


@pytest.mark.parametrize("byte", [b" ", b'"', b"\\", b",", b":", b"{", b"}", b"\0", b"\n", b"x", b"1"])
def test_every_byte_replaced_or_added_is_seen(byte: bytes) -> None:
    text = emit_index(OURS)
    for place in range(len(text) + 1):
        replaced = text[:place] + byte + text[place + 1 :]
        for other in {replaced, text[:place] + byte + text[place:]} - {text}:
            with pytest.raises((FormatError, IntegrityError, UnsupportedError)):
                parse_index(other, PATH)


@pytest.mark.parametrize("n_bytes", [1, 2, 7, 64, 512])
def test_every_byte_removed_is_seen(n_bytes: int) -> None:
    text = emit_index(OURS)
    for place in range(len(text)):
        with pytest.raises((FormatError, IntegrityError, UnsupportedError)):
            parse_index(text[:place] + text[place + n_bytes :], PATH)


def test_every_truncation_is_seen() -> None:
    text = emit_index(OURS)
    for stop in range(len(text)):
        with pytest.raises((IndexFileError, IntegrityError)):  # the last byte is white space after the text
            parse_index(text[:stop], PATH)


@pytest.mark.parametrize("key", ["metadata", "tensorkeep"])
def test_ours_under_another_key_is_damage_and_no_index_of_others(key: str) -> None:
    text = emit_index(OURS).replace(f'"{key}"'.encode(), b'"other"', 1)

    with pytest.raises(IntegrityError, match="section of the index with its digest is damaged"):
        parse_index(text, PATH)


def test_an_index_that_was_only_formatted_anew_is_not_the_one_that_was_written() -> None:
    text = json.dumps(json.loads(emit_index(OURS))).encode()

    with pytest.raises(IntegrityError, match=r"changed after it was written \(ckpt/model.*expected digest"):
        parse_index(text, PATH)


# --- ours, with a true digest, and still wrong


@pytest.mark.parametrize("version", [2, 10**9])
def test_a_later_version_is_not_guessed_at(version: int) -> None:
    with pytest.raises(UnsupportedError, match="Update tensorkeep"):
        parse_index(changed(version=version, shards="anything"), PATH)


@pytest.mark.parametrize(
    "section",
    [
        {"version": "1"},
        {"version": None},
        {"shards": None},
        {"shards": {A: None, B: None}},
        {"shards": {A: {"header": "0a" * 32, "nbytes": -1}, B: {"header": "0a" * 32, "nbytes": 1}}},
        {"shards": {A: {"header": "0A" * 32, "nbytes": 1}, B: {"header": "0a" * 32, "nbytes": 1}}},
        {"shards": {A: {"header": "0a" * 32 + "\n", "nbytes": 1}, B: {"header": "0a" * 32, "nbytes": 1}}},
        {"shards": {A: {"header": "0a" * 32, "nbytes": 1, "sha256": 5}, B: {"header": "0a" * 32, "nbytes": 1}}},
        {"splits": ["b"]},
    ],
    ids=str,
)
def test_records_of_the_wrong_form_are_damage(section: dict) -> None:
    with pytest.raises(IntegrityError, match=r"section of the index with its digest is damaged \(ckpt/"):
        parse_index(changed(**section), PATH)


@pytest.mark.parametrize("digest", [None, 5, "", "0" * 63, "A" * 64, "0" * 64 + "\n"])
def test_a_digest_of_the_wrong_form_is_damage(digest: object) -> None:
    document = json.loads(emit_index(OURS))
    document["metadata"]["tensorkeep"]["digest"] = digest

    with pytest.raises(IntegrityError, match="section of the index with its digest is damaged"):
        parse_index(text_of(document), PATH)


@pytest.mark.parametrize(
    ("files", "found"),
    [([A], f"no record for `{B}`"), ([A, B, "c"], "a record for `c`, which has no tensor"), ([], A)],
)
def test_files_and_records_are_the_same(files: list[str], found: str) -> None:
    records = {file: {"header": "0a" * 32, "nbytes": 1} for file in files}

    with pytest.raises(IntegrityError, match="one record per file") as caught:
        parse_index(changed(shards=records), PATH)
    assert found in str(caught.value)
    assert caught.value.path == PATH


@pytest.mark.parametrize(
    "splits",
    [
        {"b": []},
        {"b": ["b[0:2]"], "a": ["b[2:3]"]},
        {"b": ["b[2:3]", "b[0:2]"]},
        {"b": ["b[2:3]"]},
        {"b": ["b[0:2]", "b[0:2]"]},
        {"b": ["b[0:2]", "b[2:4]"]},
        {"a.weight": ["b[0:2]"]},
        {"b": ["a.weight"]},
    ],
    ids=str,
)
def test_pieces_stand_in_the_index_and_follow_each_other(splits: dict) -> None:
    with pytest.raises(IndexFileError, match="do not follow each other"):
        parse_index(changed(splits=splits), PATH)


# --- not an index


OUTSIDE = [
    *("", ".", "..", "/", "/etc/passwd", "../x.safetensors", "a/../../x", "a/..", "a//b", "a/", "./a", "//host/x"),
    *("..\\x", "a\\b", "\\x", "C:x", "c:/x", "C:\\x", "a\0b", "\0", "\\\\host\\x"),
    *("ab:c", "dir/ab:c", "a\x1b[31m", "a\n"),
]


@pytest.mark.parametrize("file", OUTSIDE)
def test_files_outside_the_directory_are_refused(file: str) -> None:
    with pytest.raises(IndexFileError, match="a file outside its directory") as caught:
        parse_index(text_of({"weight_map": {"a": "x", "b": file}}), PATH)

    assert caught.value.found == repr(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "an empty file"),
        (b"\0" * 4096, "nothing but zero bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404</html>", "an HTML page"),
        (b"{", "cannot read the index"),
        (b"{}", "weight_map"),
        (b"[]", "expected the JSON text of an index"),
        (b"null", "cannot read the index"),
        (b'{"weight_map":[]}', "weight_map"),
        (b'{"weight_map":{"a":1}}', "weight_map"),
        (b'{"weight_map":{"a":null}}', "weight_map"),
        (b'{"weight_map":{},"metadata":[]}', "metadata"),
        (b'{"weight_map":{}} x', "cannot read the index"),
        (b'{"weight_map":{}}{"weight_map":{}}', "cannot read the index"),
        (b'\xef\xbb\xbf{"weight_map":{}}', "cannot read the index"),
        ('{"weight_map":{}}'.encode("utf-16"), "cannot read the index"),
        (b'{"weight_map":{"\xff":"x"}}', "cannot read the index"),
        (b'{"weight_map":{},"other":"\xff"}', "cannot read the index"),
        (b'{"weight_map":{"\\ud800":"x"}}', "cannot read the index"),
        (b'{"weight_map":{},"metadata":{"a":NaN}}', "cannot read the index"),
        (b'{"weight_map":{},"metadata":{"a":1e999}}', "cannot read the index"),
        (b'{"weight_map":{},"metadata":{"a":' + b"9" * 10_000 + b"}}", "cannot read the index"),
        (b'{"weight_map":{},"metadata":{"a":' + b"[" * 100_000, "recursion"),
        (b'{"weight_map":{},"other":' + b"[" * 100_000, "recursion"),
        (b'{"weight_map":' + b'{"a":' * 100_000, "cannot read the index"),
    ],
)
def test_what_is_no_index_is_named(text: bytes, message: str) -> None:
    with pytest.raises(IndexFileError, match=message) as caught:
        parse_index(text, PATH)

    assert caught.value.path == PATH


def test_an_index_with_a_state_and_with_escapes_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    records = {"x": ShardRecord(10, "0" * 64)}
    text = emit_index(Index({"é": "x", "a\n": "x"}, {"a:b": ":"}, records, state='{"tree":["dict","a: \\\\"]}'))
    monkeypatch.setattr(_index, "_walk", None)

    assert parse_index(text, "index").weight_map == {"é": "x", "a\n": "x"}


@pytest.mark.parametrize(
    "text",
    [
        b'{"weight_map":{"a":"x","a":"y"}}',
        b'{"weight_map":{"a":"x","\\u0061":"y"}}',
        b'{"weight_map":{"a":"x","a":"\\u003a"}}',  # as many colons as keys and texts have
        b'{"weight_map":{"a":"x\\u003A","a":"\\u003A"}}',
        b'{"weight_map":{},"weight_map":{"a":"x"}}',
        b'{"weight_map":{},"metadata":{},"metadata":null}',
        b'{"weight_map":{},"other":1,"other":2}',
        b'{"weight_map":{},"metadata":{"a":[{"b":1,"b":1}]}}',
        b'{"weight_map":{},"other":{"a":[{"b":1,"b":1}]}}',
    ],
)
def test_equal_keys_are_refused_anywhere(text: bytes) -> None:
    with pytest.raises(IndexFileError, match="twice"):
        parse_index(text, PATH)


def test_an_index_of_any_length_is_not_read() -> None:
    with pytest.raises(IndexFileError, match="at most 40,000,000 bytes"):
        parse_index(b" " * (MAX_INDEX_NBYTES + 1), PATH)


def test_a_message_stays_short() -> None:
    with pytest.raises(IndexFileError) as caught:
        parse_index(text_of({"weight_map": {"a": "../" + "x" * 10**6}}), PATH)

    assert len(str(caught.value)) < 3000


PARTS = [
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u003a", b"\xff", b"0", b"null", b"1e9", b" ", b'"a"'),
    *(b'"weight_map":{', b'"metadata":{', b'"tensorkeep":{', b'"digest":"' + b"0" * 64 + b'"', b'"version":1'),
    *(b'"shards":{}', b'"splits":{}', b'"a":"x"', b'"..":"../x"'),
]


def mutated(text: bytes, cuts: list[tuple[int, int, bytes]]) -> bytes:
    for start, n_bytes, new in cuts:
        start %= len(text) + 1
        text = text[:start] + new + text[start + n_bytes :]
    return text


mutations = st.builds(
    mutated,
    st.sampled_from([emit_index(OURS), text_of(FOREIGN), b'{"metadata":{"tensorkeep":{}},"weight_map":{"a":"x"}}']),
    st.lists(
        st.tuples(st.integers(0, 2000), st.integers(0, 20), st.sampled_from(PARTS) | st.binary(max_size=3)),
        max_size=4,
    ),
)


@given(mutations | st.lists(st.sampled_from(PARTS), max_size=20).map(b"".join) | st.binary(max_size=100))
def test_any_bytes_give_an_index_or_one_of_our_errors(text: bytes) -> None:
    try:
        index = parse_index(text, PATH)
    except TensorkeepError:
        return

    document = json.loads(text)
    assert index.weight_map == document["weight_map"]
    others = {key: value for key, value in (document.get("metadata") or {}).items() if key != "tensorkeep"}
    assert index.metadata == others
    assert all(is_inside(file) for file in index.files)
    assert index.shards is None or set(index.shards) == set(index.files)


# --- values that are never made


def endless() -> list:
    endless: list = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", 1 << 20_000, endless()], ids=["nan", "inf", "text", "int", "list"]
)
def test_what_could_not_be_read_again_is_not_written(value: object) -> None:
    with pytest.raises(IndexFileError):
        emit_index(Index({"a": "x"}, {"key": value}))


def test_metadata_that_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError):
        emit_index(Index({"a": "x"}, {"key": {1, 2}}))


def test_an_index_that_no_reader_takes_is_not_written() -> None:
    with pytest.raises(LimitError, match="index too large"):
        emit_index(Index({"a": "x"}, {"key": "x" * MAX_INDEX_NBYTES}))


def test_an_index_cannot_be_made_wrong() -> None:
    with pytest.raises(IndexFileError, match="outside"):
        Index({"a": "../x"})
    with pytest.raises(IntegrityError, match="record"):
        Index({"a": A}, {}, RECORDS)
    with pytest.raises(IndexFileError, match="pieces"):
        Index({"b[0:2]": A}, {}, {A: RECORDS[A]}, {"b": ("b[1:2]",)})
    with pytest.raises(IndexFileError, match="records"):
        Index({"b[0:2]": A}, splits={"b": ("b[0:2]",)})
    with pytest.raises(IndexFileError, match="tensorkeep"):
        Index({"a": A}, {"tensorkeep": {}})
