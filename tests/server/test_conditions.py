"""Conditions and ranges, by the tables of RFC 9110."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.server._conditions import FileVersion, decide, version_of

VERSION = FileVersion('"v1"', 1_700_000_000, 1000)
THEN = "Tue, 14 Nov 2023 22:13:20 GMT"
BEFORE, AFTER = "Tue, 14 Nov 2023 22:13:19 GMT", "Tue, 14 Nov 2023 22:13:21 GMT"


def test_the_time_is_written_as_headers_have_it() -> None:
    assert VERSION.last_modified == THEN


def decided(method: str = "GET", version: FileVersion = VERSION, **headers: str) -> tuple[int, list[tuple[int, int]]]:
    status, spans = decide(method, {name.replace("_", "-"): value for name, value in headers.items()}, version)
    return status, [(span.start, span.stop) for span in spans]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=0-999", [(0, 1000)]),
        ("bytes=10-", [(10, 1000)]),
        ("bytes=999-", [(999, 1000)]),
        ("bytes=-1", [(999, 1000)]),
        ("bytes=-5000", [(0, 1000)]),
        ("bytes=990-5000", [(990, 1000)]),
        ("bytes=0-99999999999999999999999", [(0, 1000)]),
        ("BYTES= 5-6 ", [(5, 7)]),
        ("bytes=0-1,5-6", [(0, 2), (5, 7)]),
        ("bytes=0-1, 2-3 ,-1", [(0, 2), (2, 4), (999, 1000)]),
        ("bytes=0-1,2000-3000", [(0, 2)]),
    ],
)
def test_ranges(text: str, spans: list[tuple[int, int]]) -> None:
    assert decided(range=text) == (206, spans)


@pytest.mark.parametrize("text", ["bytes=1000-", "bytes=1000-2000", "bytes=-0", "bytes=5-2", "bytes=2000-,3000-"])
def test_ranges_that_are_not_there(text: str) -> None:
    assert decided(range=text) == (416, [])


WHOLE = [
    "",
    "bytes",
    "bytes=",
    "bytes=-",
    "bytes=a-b",
    "bytes=1-2-3",
    "lines=1-2",
    "bytes=1-2;3",
    "bytes=0-1,",
    "0-1",
]


@pytest.mark.parametrize("text", [*WHOLE, "bytes=5-9,0-1", "bytes=0-5,3-9", "bytes=" + "1" * 5000 + "-", "bytes=٣-٤"])
def test_what_is_no_range_is_answered_with_the_whole(text: str) -> None:
    assert decided(range=text) == (200, [(0, 1000)])


def test_ranges_mean_something_to_get_only() -> None:
    assert decided("HEAD", range="bytes=0-1") == (200, [(0, 1000)])


def test_an_empty_file_has_no_ranges() -> None:
    empty = VERSION._replace(nbytes=0)

    assert decided(version=empty) == (200, [(0, 0)])
    assert decided(version=empty, range="bytes=0-") == (416, [])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"if_match": '"v1"'}, 200),
        ({"if_match": "*"}, 200),
        ({"if_match": '"v0", "v1"'}, 200),
        ({"if_match": '"v0"'}, 412),
        ({"if_match": 'W/"v1"'}, 412),
        ({"if_match": "v1"}, 412),
        ({"if_match": '"v0"', "range": "bytes=0-1"}, 412),
        ({"if_match": '"v1"', "if_unmodified_since": BEFORE}, 200),
        ({"if_unmodified_since": THEN}, 200),
        ({"if_unmodified_since": BEFORE}, 412),
        ({"if_unmodified_since": "yesterday"}, 200),
        ({"if_none_match": '"v1"'}, 304),
        ({"if_none_match": 'W/"v1"'}, 304),
        ({"if_none_match": "*"}, 304),
        ({"if_none_match": '"v0"'}, 200),
        ({"if_none_match": '"v1"', "range": "bytes=0-1"}, 304),
        ({"if_none_match": '"v0"', "if_modified_since": AFTER}, 200),
        ({"if_modified_since": THEN}, 304),
        ({"if_modified_since": BEFORE}, 200),
        ({"if_modified_since": "Tue, 99 Nov 2023 22:13:20 GMT"}, 200),
        ({"range": "bytes=0-1", "if_range": '"v1"'}, 206),
        ({"range": "bytes=0-1", "if_range": '"v0"'}, 200),
        ({"range": "bytes=0-1", "if_range": 'W/"v1"'}, 200),
        ({"range": "bytes=0-1", "if_range": THEN}, 206),
        ({"range": "bytes=0-1", "if_range": BEFORE}, 200),
        ({"range": "bytes=0-1", "if_range": AFTER}, 200),
        ({"range": "bytes=0-1", "if_range": ""}, 200),
    ],
)
def test_conditions(headers: dict[str, str], status: int) -> None:
    assert decided(**headers)[0] == status


@given(st.text(alphabet="bytes=0123456789-, ", max_size=40), st.integers(0, 50))
def test_whatever_is_asked_lies_in_the_file(text: str, nbytes: int) -> None:
    status, spans = decided(version=VERSION._replace(nbytes=nbytes), range=f"bytes={text}")

    assert status in {200, 206, 416}
    assert bool(spans) == (status != 416)
    ends = [0]
    for start, stop in spans:
        assert ends[-1] <= start <= stop <= nbytes
        assert start < stop or status == 200
        ends.append(stop)


class TestVersions:
    def test_a_file_that_replaced_another_of_its_size_and_time(self, tmp_path: Path) -> None:
        old, new = tmp_path / "old", tmp_path / "new"
        old.write_bytes(b"1")
        new.write_bytes(b"2")
        shutil.copystat(old, new)
        before = version_of(old.stat())
        os.replace(new, old)

        assert version_of(old.stat()).etag != before.etag

    def test_a_file_that_was_written_to(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_bytes(b"1")
        os.utime(file, ns=(0, 10**18))
        before = version_of(file.stat())
        os.utime(file, ns=(0, 10**18 + 1))

        assert version_of(file.stat()).etag != before.etag

    def test_another_link_to_the_same_bytes_changes_nothing(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_bytes(b"1")
        before = version_of(file.stat())
        os.link(file, tmp_path / "link")

        assert version_of(file.stat()) == before == version_of((tmp_path / "link").stat())

    @pytest.mark.parametrize("seconds", [-(10**9), 0, 10**11])
    def test_times_that_no_header_can_have(self, tmp_path: Path, seconds: int) -> None:
        file = tmp_path / "file"
        file.touch()
        os.utime(file, (seconds, seconds))

        assert version_of(file.stat()).last_modified.endswith("GMT")
