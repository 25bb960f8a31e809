"""What a fetch remembers: sets of ranges, and the journal of a process that may be killed while it writes."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tensorkeep.fetching._companions import companions_among, is_page
from tensorkeep.fetching._journal import Begun, Came, Fetch, decode_journal, encode_line
from tensorkeep.fetching._spans import cut, joined, without
from tensorkeep.fetching._version_id import VersionId
from tensorkeep.transport import ByteRange, Version
from tests.support.for_each import for_each

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda it: ByteRange(it[0], it[0] + it[1])))


def places(spans: list[ByteRange]) -> set[int]:
    return {place for span in spans for place in range(span.start, span.stop)}


@given(SPANS, SPANS, st.integers(1, 7))
def test_sets_of_ranges_are_sets(spans: list[ByteRange], others: list[ByteRange], longest: int) -> None:
    assert places(joined(spans)) == places(spans)
    assert all(one.stop < other.start for one, other in zip(joined(spans), joined(spans)[1:], strict=False))
    assert places(without(spans, others)) == places(spans) - places(others)
    pieces = list(cut(joined(spans), longest))
    assert places(pieces) == places(spans)
    assert sum(map(len, pieces)) == len(places(spans))
    assert all(0 < len(piece) <= longest for piece in pieces)


STAMP = VersionId(100, '"a"', None, None)
LINES = [
    Fetch("https://host/model/", "12345678"),
    Begun("a", STAMP),
    Came("a", 0, 40),
    Begun("b/c", VersionId(7, None, "yesterday")),
    Came("a", 60, 100),
    Came("a", 40, 60),
    Came("b/c", 0, 7),
]
TEXT = b"".join(map(encode_line, LINES))


def test_a_journal_is_read_as_it_was_written() -> None:
    progress = decode_journal(TEXT)

    assert progress.fetch == LINES[0]
    assert progress.stamps == {"a": STAMP, "b/c": VersionId(7, None, "yesterday")}
    assert progress.spans == {"a": [ByteRange(0, 100)], "b/c": [ByteRange(0, 7)]}


def test_a_journal_that_is_cut_off_anywhere_says_no_more_than_was_written() -> None:
    for end in range(len(TEXT)):
        whole = TEXT[:end].count(b"\n")

        assert decode_journal(TEXT[:end]) == decode_journal(b"".join(map(encode_line, LINES[:whole])))


@for_each("place", range(0, len(TEXT), 3))
def test_a_damaged_journal_says_nothing_that_was_not_written(place: int) -> None:
    damaged = bytearray(TEXT)
    damaged[place] ^= 1

    found, true = decode_journal(bytes(damaged)), decode_journal(TEXT)

    assert found.fetch in {true.fetch, None}
    assert all(places(spans) <= places(true.spans[name]) for name, spans in found.spans.items())


def test_a_file_that_is_begun_again_has_nothing() -> None:
    again = TEXT + encode_line(Begun("a", VersionId(50, '"b"')))

    assert decode_journal(again).spans["a"] == []
    assert decode_journal(again).stamps["a"] == VersionId(50, '"b"')


def test_a_later_journal_is_not_understood() -> None:
    assert decode_journal(encode_line(Fetch("https://host/", None, 2)) + TEXT).fetch is None
    assert decode_journal(b"").fetch is None


def test_stamps() -> None:
    assert VersionId.of(Version(5)) == VersionId(5)
    assert not VersionId.of(Version(5)).is_unique
    assert VersionId.of(Version(5, '"tag"', "monday")) == VersionId(5, '"tag"'), (
        "servers of one site may disagree on times"
    )
    assert VersionId.of(Version(5, 'W/"tag"', "monday")) == VersionId(5, 'W/"tag"', "monday")
    assert VersionId.of(Version(5, None, "monday")).is_unique
    assert VersionId.of(Version(5, None, None, "3")).is_unique


def test_companions() -> None:
    names = [
        *(
            "config.json",
            "tokenizer.model",
            "vocab.txt",
            "README.md",
            "LICENSE",
            "LICENSE.txt",
            "chat_template.jinja",
        ),
        *("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"),
        *("modeling_own.py", "run.sh", ".gitattributes", "tf_model.h5", "figure.png", "tensorkeep.manifest.json"),
        *("commit.json", "LICENSE.head", "original"),
    ]

    assert companions_among(names) == names[:7]
    assert is_page(b"\n <!DOCTYPE HTML><html>")
    assert is_page(b"<html lang='en'>")
    assert not is_page(b'{"html": 1}')
