"""The command line on URLs: what reads works, what writes says so, and nothing secret is shown."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.cli import main
from tests.support.remote.fault_server import FaultServer

STATE = {"w": np.arange(100_000, dtype=np.float32).reshape(100, 1000), "b": np.ones(5), "step": 3}
SECRETS = ("anna", "pass-w0rd", "sig-123")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tensorkeep.save(STATE, folder / "one.safetensors")
    tensorkeep.save_checkpoint(STATE, folder, max_shard_size="200KB", base_name="many")
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(10, 10)}, buffer)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files |= {"fine.pt": buffer.getvalue(), "evil.pt": b"cos\nsystem\n(S'echo hi'\ntR."}
    with FaultServer(files) as server:
        yield lambda name: f"http://anna:pass-w0rd@{server.host}/{name}?signature=sig-123"


@pytest.fixture
def run(capfd):
    def run(*arguments: str) -> tuple[int, str]:
        status = main(list(map(str, arguments)))
        shown = "".join(capfd.readouterr())
        assert not [secret for secret in SECRETS if secret in shown]
        return status, shown

    return run


@pytest.mark.parametrize("name", ["one.safetensors", "many.safetensors.index.json", "fine.pt"])
def test_what_reads(url, run, name) -> None:
    assert run("inspect", url(name))[0] == 0
    assert run("verify", url(name))[0] == 0
    assert run("slice", url(name), "w", "[0:2, :3]")[0] == 0
    assert run("slice", url(name), "w", "[0:2, :3]", "--plan")[0] == 0
    assert json.loads(run("inspect", url(name), "--json")[1])["path"].startswith("http://127.0.0.1")
    assert run("verify", url(name), "--json")[0] == 0
    assert run("diff", url(name), url(name))[0] == 0


def test_scan(url, run) -> None:
    assert run("scan", url("fine.pt"), url("one.safetensors"))[0] == 0
    status, shown = run("scan", url("evil.pt"))
    assert (status, "os.system" in shown) == (1, True)
    assert run("scan", url("evil.pt"), "--json")[0] == 1
    assert run("scan", url("evil.pt"), "--sarif")[0] == 1
    assert run("scan", url("none.pt"))[0] == 2


def test_scan_of_what_a_store_lists(run, tmp_path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe({"/scanned/a.pt": b"cos\nsystem\n(S'echo hi'\ntR.", "/scanned/deep/er/b.txt": b"x"})
    status, shown = run("scan", "memory://scanned/")
    memory.rm("/scanned", recursive=True)

    assert status in {1, 2}
    assert "scanned/a.pt" in shown


@pytest.mark.parametrize("name", ["one.safetensors", "many.safetensors.index.json", "fine.pt"])
def test_what_makes_a_copy_on_the_disk(url, run, tmp_path, name) -> None:
    assert run("convert", url(name), tmp_path / "converted")[0] == 0
    converted = tensorkeep.load(tmp_path / "converted", framework="numpy")
    assert np.array_equal(converted["w"], np.ones((10, 10)) if name == "fine.pt" else STATE["w"])
    if name != "fine.pt":
        assert run("reshard", url(name), tmp_path / "resharded", "--max-shard-size", "1MB")[0] == 0
        assert tensorkeep.load(tmp_path / "resharded")["step"] == 3


def test_what_works_on_a_disk_only(url, run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("edit", url("one.safetensors"), "--set", "a=b"),
        ("list", url("runs")),
        ("convert", url("fine.pt"), url("there")),
        ("reshard", url("one.safetensors"), url("there")),
    ):
        status, shown = run(*arguments)
        assert status == 2
        assert "error: " in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["inspect", "verify", "convert", "reshard"])
def test_what_is_missing(url, run, tmp_path, command) -> None:
    more = [tmp_path / "there"] if command in {"convert", "reshard"} else []
    status, shown = run(command, url("none.safetensors"), *more)

    assert status in {1, 2}
    assert "there is no such file (http://127.0.0.1" in shown
