"""Each rule of the format, by a file that breaks it and by files that keep it in unusual ways."""

from __future__ import annotations

import pytest
import safetensors

from tensorkeep.errors import HeaderError
from tensorkeep.formats.safetensors import read_header
from tensorkeep.transport import MemorySource
from tests.support.formats.header_corpus import ACCEPTED, REFUSED, Case

PREFIX = "Error while deserializing header: "


def by_rule(case: Case) -> str:
    return case.rule


def reference_says(file: bytes) -> str | None:
    try:
        safetensors.deserialize(file)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        return str(error).removeprefix("Error while deserializing: ")
    return None


@pytest.mark.parametrize("case", REFUSED, ids=by_rule)
def test_a_broken_rule_is_refused_in_the_words_of_the_reference(case: Case) -> None:
    with pytest.raises(HeaderError) as caught:
        read_header(MemorySource(case.file, "model.safetensors"))

    assert str(caught.value).startswith(PREFIX + case.words)
    assert caught.value.path == "model.safetensors"


@pytest.mark.parametrize("case", ACCEPTED, ids=by_rule)
def test_an_unusual_file_is_read(case: Case) -> None:
    header = read_header(MemorySource(case.file))

    assert header.data_start + header.data_nbytes == len(case.file)


@pytest.mark.parametrize("case", REFUSED + ACCEPTED, ids=by_rule)
def test_the_corpus_is_right_about_the_reference(case: Case) -> None:
    refusal = reference_says(case.file)

    assert (refusal is None) == ((case in ACCEPTED) != case.differs)
    if refusal and not case.differs:
        assert refusal.startswith(case.words)


def test_every_rule_has_one_name() -> None:
    rules = [case.rule for case in REFUSED + ACCEPTED]

    assert len(set(rules)) == len(rules)


def test_metadata_is_read_as_it_stands() -> None:
    files = {case.rule: case.file for case in ACCEPTED}

    def metadata(rule: str) -> dict[str, str] | None:
        return read_header(MemorySource(files[rule])).metadata

    assert metadata("no tensors") is None
    assert metadata("metadata that is null") is None
    assert metadata("metadata without keys") == {}
    assert metadata("metadata at the end") == {"k": "v"}
    assert metadata("metadata spelled with escapes") == {"a": "b"}
    assert metadata("metadata's name in metadata") == {"__metadata__": "x"}
    assert metadata("metadata's name in metadata's text") == {"a": '"__metadata__":{}'}
    assert metadata("metadata's name in a field that nobody reads") is None


def test_entries_come_in_the_order_of_the_bytes() -> None:
    files = {case.rule: case.file for case in ACCEPTED}

    header = read_header(MemorySource(files["entries that are not in the order of the bytes"]))

    assert list(header.entries) == ["a", "b"]


def test_a_limit_of_the_caller_holds() -> None:
    file = (40).to_bytes(8, "little") + b"{}".ljust(40)

    assert read_header(MemorySource(file), max_header_nbytes=40).entries == {}
    with pytest.raises(HeaderError, match=r"header too large.*at most 39 bytes"):
        read_header(MemorySource(file), max_header_nbytes=39)


def test_a_message_stays_short_whatever_the_file_holds() -> None:
    name = "a" * 100_000
    files = (
        f'{{"{name}":{{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}}}'.encode(),
        f'{{"a":{{"dtype":"U8","shape":[{"1," * 50_000}2],"data_offsets":[0,1]}}}}'.encode(),
        f'{{"{name}":{{}},"{name}":{{}}}}'.encode(),
        f'{{"__metadata__":{{"{name}":"","{name}":""}}}}'.encode(),
    )
    for header in files:
        with pytest.raises(HeaderError) as caught:
            read_header(MemorySource(len(header).to_bytes(8, "little") + header + b"x"))

        assert len(str(caught.value)) < 10_000
