"""The one rule for names that come out of files, and that every reader of such names keeps it."""

from __future__ import annotations

import ntpath
import os
import posixpath
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorkeep.errors import TensorkeepError
from tensorkeep.layout import FileRecord, emit_manifest, parse_index, parse_manifest
from tensorkeep.paths import is_inside, is_local_name, is_plain_name

GOOD_NAMES = ["m", "model-00001-of-00003.safetensors", ".hidden", "-rf", "é", "two words", "a..b", "~", "CON", "…"]
BAD_NAMES = [
    *("", ".", "..", "...", " ", ". .", ".. "),
    *("/", "a/", "/a", "a/b", "\\", "a\\b", "..\\a", "\\\\host\\a"),
    *("C:", "C:a", "ab:c", "a:", ":a", "file.safetensors::$DATA"),
    *(
        "\0",
        "a\0",
        "two\nlines",
        "\x1b[31m",
        "a\x7f",
        "a\x9b",
        "a\u2028b",
        "gnp\u202etxt.a",
        "\udcff",
        "\ud800\udc00",
    ),
]
BAD_PATHS = ["", "/a", "a/", "a//b", "./a", "a/.", "../a", "a/../b", "a/..", "//host/a", "dir/ab:c", "a/b\\..\\..\\c"]

NAMES = st.text(st.one_of(st.sampled_from("ab./\\: \0\n~C\u202e\udcff"), st.characters()), max_size=8)
JOINED = [(posixpath, "/r/d"), (ntpath, "R:\\r\\d")]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_plain_names(name: str) -> None:
    assert is_plain_name(name)
    assert is_inside(name)
    assert is_inside(f"folder/{name}")
    assert is_local_name(name)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_not_plain(name: str) -> None:
    assert not is_plain_name(name)
    if name != "a/b":
        assert not is_inside(name)
        assert not is_inside(f"folder/{name}")
        assert not is_inside(f"{name}/file")


@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_that_are_not_inside(path: str) -> None:
    assert not is_inside(path)


@given(NAMES)
@example("a/b.safetensors")
@example("ab:c")
def test_an_accepted_path_stays_below_its_directory_on_every_system(path: str) -> None:
    if is_inside(path):
        for system, root in JOINED:
            joined = system.normpath(system.join(root, path))
            assert joined.startswith(root + system.sep)
            assert system.splitdrive(path)[0] == ""
        assert ":" not in path


@given(NAMES)
def test_an_accepted_name_is_one_file_on_every_system(name: str) -> None:
    if is_plain_name(name):
        for system, root in JOINED:
            assert system.dirname(system.normpath(system.join(root, name))) == root
            assert system.basename(name) == name
        assert name.encode().decode() == name


@given(NAMES)
def test_a_path_is_inside_if_each_of_its_parts_is_plain(path: str) -> None:
    assert is_inside(path) == all(is_plain_name(part) for part in path.split("/"))
    assert is_plain_name(path) == (is_inside(path) and "/" not in path)


@given(NAMES)
@example("at-12:00.ckpt")
def test_a_local_name_is_less_strict_and_still_one_file_here(name: str) -> None:
    assert is_local_name(name) or not is_plain_name(name)
    if is_local_name(name):
        assert os.path.basename(name) == name
        assert os.path.normpath(os.path.join("/r/d", name)) == f"/r/d/{name}"


@pytest.mark.skipif(os.name == "nt", reason="names that Windows does not have")
@pytest.mark.parametrize("name", ["at-12:00.ckpt", "two\nlines", " ", "..."])
def test_names_that_only_some_systems_have_are_local(name: str) -> None:
    assert is_local_name(name)
    assert not is_plain_name(name)


# --- every reader of names keeps the rule


def _index_of(file: str) -> object:
    return parse_index(msgspec.json.encode({"weight_map": {"a": file}}), "index.json")


def _manifest_of(file: str) -> object:
    return parse_manifest(emit_manifest({file: FileRecord(1, blake3="0" * 64)}), "manifest.json")


READERS = [_index_of, _manifest_of]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("path", [path for path in (*BAD_NAMES, *BAD_PATHS) if path != "a/b" and path.isascii()])
def test_files_that_name_a_bad_path_are_refused(read: Callable[[str], object], path: str) -> None:
    with pytest.raises(TensorkeepError):
        read(path)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("path", [*GOOD_NAMES, "folder/file.safetensors"])
def test_files_that_name_a_good_path_are_read(read: Callable[[str], object], path: str) -> None:
    read(path)
