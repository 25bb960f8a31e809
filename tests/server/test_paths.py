"""What a request's target means, and what is opened for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.server._paths import asked_by, is_served, link_to
from tensorkeep.server._tree import entries_of, open_below


@pytest.mark.parametrize(
    ("target", "names", "is_folder"),
    [
        ("/", (), True),
        ("/a", ("a",), False),
        ("/a/", ("a",), True),
        ("/a/b.safetensors?x=/../y#z", ("a", "b.safetensors"), False),
        ("/a%20b/%C3%A9", ("a b", "é"), False),
        ("/a%", ("a%",), False),
        ("/%41?%2e%2e", ("A",), False),
        ("/a~b", ("a~b",), False),
        ("/a..b", ("a..b",), False),
        ("http://example.org/a/b", ("a", "b"), False),
        ("HTTP://example.org", (), True),
    ],
)
def test_targets(target: str, names: tuple[str, ...], is_folder: bool) -> None:
    found = asked_by(target)

    assert found is not None
    assert (found.names, found.is_folder) == (names, is_folder)


REFUSED = [
    *("", "*", "a", "//", "/a//b", "//etc/passwd", "/.", "/..", "/../", "/a/../b", "/a/./b", "/.git/config", "/a/.b"),
    *("/%2e%2e/a", "/%2E%2E/a", "/.%2e/a", "/a%2fb", "/a%2Fb", "/%2fetc", "/..%2f", "/a%00", "/a%00.txt", "/a%0ab"),
    *("/a\\b", "/a%5cb", "/..%5c..%5c", "/%c0%ae%c0%ae/", "/%ff", "/a%80", "/%252e%252e".replace("25", "", 1)),
    *("ftp://x/a", "file:///etc/passwd", "/a\x7f", "/\udcff", "/%ed%a0%80"),
]


@pytest.mark.parametrize("target", REFUSED)
def test_what_could_lead_elsewhere_names_nothing(target: str) -> None:
    assert asked_by(target) is None


def test_escapes_are_read_once() -> None:
    assert asked_by("/%252e%252e").names == ("%2e%2e",)


@given(st.text(max_size=30))
def test_whatever_is_asked_is_plain(text: str) -> None:
    found = asked_by("/" + text)

    for name in found.names if found else ():
        assert os.path.basename(name) == name
        assert not name.startswith(".")
        assert "\0" not in name


@given(st.text(min_size=1, max_size=30).filter(is_served), st.booleans())
def test_links_lead_to_what_they_name(name: str, is_folder: bool) -> None:
    found = asked_by("/" + link_to(name, is_folder=is_folder).removeprefix("./"))

    assert found is not None
    assert (found.names, found.is_folder) == ((name,), is_folder)


def opened(root: Path, *names: str) -> bytes | None:
    found = open_below(str(root), names)
    if found is None:
        return None
    with open(found.fd, "rb") as file:
        return file.read()


def test_links_within_are_followed(served: Path) -> None:
    assert opened(served, "links", "inside") == served.joinpath("bytes").read_bytes()
    assert opened(served, "links", "folder", "model.safetensors.index.json") is not None
    assert opened(served, "links", "up", "config.json") == b'{"a": 1}'


@pytest.mark.parametrize("name", ["out", "relative-out", "to-hidden", "loop", "nowhere", "out-folder/secret.txt"])
def test_links_that_lead_out_lead_nowhere(served: Path, name: str) -> None:
    assert opened(served, "links", *name.split("/")) is None


@pytest.mark.parametrize("names", [("missing",), ("bytes", "x"), ("pipe",), ("x" * 300,), ("sharded", "missing")])
def test_nothing_is_opened(served: Path, names: tuple[str, ...]) -> None:
    assert opened(served, *names) is None


def test_a_directory_that_is_itself_a_link_is_served(served: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(served)

    assert opened(link, "config.json") == b'{"a": 1}'
    assert opened(link, "links", "inside") is not None
    assert opened(link, "links", "out") is None


def test_a_link_that_is_changed_in_between_leads_nowhere(
    served: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    folder.joinpath("secret.txt").write_text("harmless")
    link = tmp_path / "link"
    link.symlink_to("real")
    resolve = os.path.realpath

    def resolve_and_swap(path: str) -> str:
        found = resolve(path)
        if folder.is_dir() and not folder.is_symlink():
            folder.rename(tmp_path / "aside")
            folder.symlink_to(outside)
        return found

    assert opened(tmp_path, "link", "secret.txt") == b"harmless"
    monkeypatch.setattr(os.path, "realpath", resolve_and_swap)

    assert opened(tmp_path, "link", "secret.txt") is None
    assert folder.joinpath("secret.txt").read_text() == "SECRET"


def test_entries_are_what_can_be_opened(served: Path) -> None:
    for names in ([], ["links"], ["sharded"]):
        folder = open_below(str(served), names)
        listed = {entry.name: entry for entry in entries_of(str(served), folder)}
        folder.close()
        there = {name for name in os.listdir(served.joinpath(*names)) if is_served(name)}

        assert listed.keys() == {name for name in there if can_be_opened(served, *names, name)}
        for entry in listed.values():
            path = served.joinpath(*names, entry.name)
            assert entry.is_folder == path.is_dir()
            assert entry.is_folder or entry.nbytes == path.stat().st_size


def can_be_opened(root: Path, *names: str) -> bool:
    found = open_below(str(root), names)
    if found is not None:
        found.close()
    return found is not None
