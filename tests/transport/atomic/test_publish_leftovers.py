"""What killed saves left behind is swept by the next one; what is under way, or somebody else's, is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensorkeep.transport import publish, sweep_leftovers
from tensorkeep.transport.system import _mounts, _platform
from tests.support.transport.publishing import NEW, OLD, names, save


@pytest.mark.parametrize(
    "name", ["m" * 255, "é" * 127, "\U0001f600" * 63, "m.safetensors\n", "two\nlines", " ", "-rf", "a\\b"]
)
def test_names_of_every_kind_are_written_and_their_leftovers_swept(tmp_path: Path, name: str) -> None:
    save(tmp_path / name)
    assert (tmp_path / name).read_bytes() == NEW

    with publish(tmp_path / name) as sink:
        sink.write([NEW])
        (staged,) = set(os.listdir(tmp_path)) - {name}
    (tmp_path / staged).write_bytes(NEW)  # as a killed save leaves it
    assert len(sweep_leftovers(str(tmp_path))) == 1
    assert names(tmp_path) == [name]


def test_a_save_under_way_is_not_swept_by_another(tmp_path: Path) -> None:
    sweep = f"len(sweep_leftovers({str(tmp_path)!r}))"
    program = f"import sys; from tensorkeep.transport import sweep_leftovers; sys.exit({sweep})"
    with publish(tmp_path / "slow") as sink:
        sink.write([NEW])
        staged = names(tmp_path)
        save(tmp_path / "quick")
        assert sweep_leftovers(str(tmp_path)) == []
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
        assert set(staged) < set(names(tmp_path))

    assert names(tmp_path) == ["quick", "slow"]


def test_only_dead_staged_files_are_swept(tmp_path: Path) -> None:
    dead = ".model.01234567-0123456789abcdef.tensorkeep-staged"
    others = [
        "model.01234567-0123456789abcdef.tensorkeep-staged",
        ".model.01234567-0123456789abcde.tensorkeep-staged",
        ".model.01234567-0123456789abcdeg.tensorkeep-staged",
        ".model.0123456-0123456789abcdef.tensorkeep-staged",
        ".model.01234567-0123456789abcdef.tensorkeep-staged.bak",
        ".model.tensorkeep-staged",
        "model",
    ]
    for name in (dead, *others):
        (tmp_path / name).write_bytes(OLD)
    folder = tmp_path / ".folder.01234567-0123456789abcdef.tensorkeep-staged"
    folder.mkdir()
    (tmp_path / "below").mkdir()
    shutil.copy(tmp_path / dead, tmp_path / "below" / dead)

    assert sweep_leftovers(str(tmp_path)) == [str(tmp_path / dead)]
    assert names(tmp_path) == sorted([*others, folder.name, "below"])
    assert names(tmp_path / "below") == [dead]
    assert sweep_leftovers(str(tmp_path / "missing")) == []


def test_a_link_that_looks_like_a_leftover_costs_nobody_their_file(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(OLD)
    (tmp_path / ".model.01234567-0123456789abcdef.tensorkeep-staged").symlink_to("precious")
    sweep_leftovers(str(tmp_path))

    assert (tmp_path / "precious").read_bytes() == OLD


def test_the_next_save_sweeps(tmp_path: Path) -> None:
    (tmp_path / ".gone.01234567-0123456789abcdef.tensorkeep-staged").write_bytes(OLD)
    save(tmp_path / "model")

    assert names(tmp_path) == ["model"]


def test_on_a_network_only_leftovers_of_this_host_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path.resolve() / "mounted"
    folder.mkdir()
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / {folder} rw - nfs4 x rw\n")
    monkeypatch.setattr(_mounts.filesystem_of, "__defaults__", (str(table),))
    ours = f".model.{_platform.host_tag()}-0123456789abcdef.tensorkeep-staged"
    theirs = ".model.01234567-0123456789abcdef.tensorkeep-staged"
    for name in (ours, theirs):
        (folder / name).write_bytes(OLD)

    assert sweep_leftovers(str(folder)) == [str(folder / ours)]
    assert names(folder) == [theirs]


KILLED_BY_NOBODY = """
import os, sys
from tensorkeep.transport import publish
path, mode = sys.argv[1], int(sys.argv[2], 8)
with publish(path, durable=False) as sink: sink.write([b"old"])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
with publish(path, durable=False) as sink: sink.write([b"owned by nobody"])
os.chmod(path, mode)
if not os.fork():
    with publish(path, durable=False) as sink:
        sink.write([b"new"])
        os._exit(9)
os.wait()
with publish(path, durable=False) as sink: sink.write([b"newest"])
print(*os.listdir(os.path.dirname(path)))
"""


@pytest.mark.parametrize("mode", ["644", "600", "444", "400"])
def test_users_sweep_what_they_left_whatever_mode_the_file_had(reachable: Path, mode: str) -> None:
    folder = reachable / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    program = [sys.executable, "-c", KILLED_BY_NOBODY, str(folder / "model"), mode]
    done = subprocess.run(program, capture_output=True, text=True, check=False)

    assert done.stdout.split() == ["model"], done.stderr
