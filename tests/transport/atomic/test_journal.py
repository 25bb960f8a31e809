"""The journal of a transaction: it reads as it was written, and whatever else stands there is an error."""

from __future__ import annotations

import msgspec
import pytest

from tensorkeep.errors import IntegrityError, TensorkeepError, UnsupportedError
from tensorkeep.transport.atomic._journal import Journal, check_name, decode_journal, encode_journal

JOURNAL = Journal(place=42, first=("index",), patched=("m-3",), renamed=("m-1", "ünïcode", "index"), removed=("m-2",))
TEXT = encode_journal(JOURNAL)
BAD_NAMES = ["", ".", "..", "a/b", "/etc/passwd", "../a", "a\\b", "\\\\host\\a", "C:a", "a\0"]


def with_names(names: tuple[str, ...], field: str) -> bytes:
    return encode_journal(msgspec.structs.replace(JOURNAL, **{field: names}))


def test_a_journal_reads_as_it_was_written() -> None:
    read = decode_journal(TEXT, "commit.json")

    assert msgspec.structs.replace(read, checksum=0) == JOURNAL
    assert encode_journal(read) == TEXT


def test_any_part_of_a_journal_is_damaged() -> None:
    for length in range(len(TEXT)):
        with pytest.raises(IntegrityError, match=r"commit\.json"):
            decode_journal(TEXT[:length], "commit.json")


def test_any_flipped_bit_is_noticed() -> None:
    for place in range(len(TEXT)):
        for bit in range(8):
            text = bytearray(TEXT)
            text[place] ^= 1 << bit
            with pytest.raises(TensorkeepError) as caught:
                decode_journal(bytes(text), "commit.json")
            later = isinstance(caught.value, UnsupportedError) and b'"version":1' not in text
            assert later or isinstance(caught.value, IntegrityError), bytes(text)


@pytest.mark.parametrize("field", ["first", "patched", "renamed", "removed"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_outside_the_directory_are_refused_even_with_a_right_checksum(field: str, name: str) -> None:
    with pytest.raises(IntegrityError, match="plain"):
        decode_journal(with_names((name,), field), "commit.json")


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"version":' * 50_000, b"\x00" * 500, b"\xff\xfe"),
        *(b'{"version":1}', b'{"version":"1"}', b'{"version":-1}', b'{"version":1e999}'),
        TEXT + b"x",
        TEXT.replace(b'"tensorkeep-commit"', b'"other"'),
        TEXT.replace(b'"place":42', b'"place":"42"'),
        TEXT.replace(b'"place":42', b'"place":42,"more":1'),
    ],
    ids=lambda text: repr(text[:30]),
)
def test_any_other_text_is_an_error_of_ours(text: bytes) -> None:
    with pytest.raises(IntegrityError):
        decode_journal(text, "commit.json")


def test_a_later_version_is_told_from_damage() -> None:
    with pytest.raises(UnsupportedError, match=r"expected version 1, found 2"):
        decode_journal(b'{"version":2,"steps":[]}', "commit.json")


@pytest.mark.parametrize("name", [*BAD_NAMES, "\udcff"])
def test_only_plain_names_pass(name: str) -> None:
    with pytest.raises(UnsupportedError):
        check_name(name, "folder")


def test_names_of_many_kinds_are_plain_and_taken_ones_are_not_free() -> None:
    for name in (
        "m",
        "model-00001-of-00003.safetensors",
        ".hidden",
        " ",
        "-rf",
        "ab:c",
        "é",
        "two\nlines",
        "a" * 255,
    ):
        check_name(name, "folder")
    with pytest.raises(UnsupportedError):
        check_name("m", "folder", taken={"m"})
