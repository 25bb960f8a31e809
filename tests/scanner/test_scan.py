"""`tensorkeep.scan`: what pickles would run, with real payloads of which none may run."""

from __future__ import annotations

import argparse
import bz2
import io
import json
import lzma
import os
import pickle
import shutil
import struct
import tarfile
import warnings
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint

from tensorkeep.errors import SourceMissingError
from tensorkeep.scanner._report import ScanFinding, ScannedFile, ScanReport
from tensorkeep.scanner._scan import scan
from tests.support import ROOT

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class Payload:
    """Runs a command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

    def forward(self, x):
        return self.layers(self.linear(x))


@pytest.fixture
def payload(tmp_path: Path) -> Iterator[Payload]:
    """A payload, and the proof that it did not run."""
    marker = tmp_path / "it-ran"
    yield Payload(f"touch {marker}")
    assert not marker.exists()


def scanned(path: Path) -> ScannedFile:
    (file,) = scan(path).files
    return file


def scanned_bytes(tmp_path: Path, content: bytes, name: str = "file.pkl") -> ScannedFile:
    path = tmp_path / name
    path.write_bytes(content)
    return scanned(path)


def dangerous(file: ScannedFile) -> list[ScanFinding]:
    return [finding for finding in file.findings if finding.severity == "dangerous"]


def assert_finds_the_payload(file: ScannedFile, payload: Payload, member: str | None = None) -> None:
    assert file.verdict == "dangerous"
    (finding,) = dangerous(file)
    assert finding.name == f"{os.system.__module__}.system"
    assert finding.deeds == ("import", "call")
    assert finding.message == "runs commands"
    assert finding.member == member
    assert finding.arguments == (f"({payload.command!r})",)
    assert not finding.is_swept


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_payload_is_found_where_it_stands(payload: Payload, tmp_path: Path, protocol: int) -> None:
    content = pickle.dumps({"weights": [1.0, 2.0], "more": payload}, protocol)

    file = scanned_bytes(tmp_path, content)

    assert_finds_the_payload(file, payload)
    assert (file.form, file.n_pickles) == ("pickle", 1)
    (finding,) = file.findings
    assert finding.position == finding.offset
    opcode = content[finding.position : finding.position + 1]
    assert opcode == (b"c" if protocol < 4 else b"\x93")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ["payload.pkl", "weights.safetensors", "notes.txt", "no-suffix"])
def test_a_pickle_is_known_by_its_content(payload: Payload, tmp_path: Path, protocol: int, name: str) -> None:
    tmp_path.joinpath(name).write_bytes(pickle.dumps(payload, protocol))

    assert_finds_the_payload(scanned(tmp_path), payload)


@pytest.mark.parametrize("new_form", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_payload_in_a_torch_file(payload: Payload, tmp_path: Path, new_form: bool, protocol: int) -> None:
    path = tmp_path / "model.pt"
    state = {"model": Net().state_dict(), "extra": payload}
    torch.save(state, path, _use_new_zipfile_serialization=new_form, pickle_protocol=protocol)

    file = scanned(path)

    assert_finds_the_payload(file, payload, "data.pkl" if new_form else None)
    (finding,) = file.findings
    opcode = path.read_bytes()[finding.offset : finding.offset + 1]
    assert opcode == (b"c" if protocol < 4 else b"\x93")


def adam_state() -> dict[str, Any]:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


HONEST: dict[str, Callable[[], Any]] = {
    "state_dict": lambda: Net().state_dict(),
    "optimizer": adam_state,
    "dtypes": lambda: {str(dtype): torch.zeros(3, dtype=dtype) for dtype in (torch.bfloat16, torch.int8, torch.bool)},
    "new dtypes": lambda: [torch.zeros(3, dtype=torch.float8_e4m3fn), torch.zeros(3, dtype=torch.uint16)],
    "views": lambda: (lambda base: [base, base[1:], base.t(), base.expand(2, 3, 4)])(torch.randn(3, 4)),
    "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "size, device, dtype": lambda: [torch.Size([1, 2]), torch.device("cpu"), torch.float16],
    "containers": lambda: [
        OrderedDict(a=1),
        defaultdict(list, a=[1]),
        Counter("aab"),
        {1, 2},
        frozenset((1,)),
        b"x",
        1j,
    ],
    "numpy": lambda: {"array": np.arange(10), "scalar": np.float64(3), "rng": np.random.get_state()},
    "lightning": lambda: {
        "state_dict": Net().state_dict(),
        "hyper_parameters": argparse.Namespace(lr=0.1, path=Path("data")),
        "loops": {"fit_loop": {"epoch": 3}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(1.0)}},
    },
}


@pytest.mark.parametrize("what", HONEST)
@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("new_form", [True, False], ids=["zip", "legacy"])
def test_honest_checkpoints_are_clean(tmp_path: Path, what: str, protocol: int, new_form: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save(HONEST[what](), path, _use_new_zipfile_serialization=new_form, pickle_protocol=protocol)

    report = scan(path)

    assert report.findings == ()
    assert report.is_clean
    assert report.files[0].form == ("PyTorch zip archive" if new_form else "PyTorch legacy stream")
    assert report.files[0].known_names or what == "loops"


@pytest.mark.parametrize("new_form", [True, False], ids=["zip", "legacy"])
def test_a_whole_module_is_unknown(tmp_path: Path, new_form: bool) -> None:
    path = tmp_path / "model.pt"
    torch.save(Net(), path, _use_new_zipfile_serialization=new_form)

    report = scan(path)

    assert report.verdict == "unknown"
    assert not report.is_clean
    by_name = {finding.name: finding for finding in report.findings}
    assert by_name.keys() == {
        f"{__name__}.Net",
        "torch.nn.modules.linear.Linear",
        "torch.nn.modules.container.Sequential",
        "torch.nn.modules.activation.ReLU",
    }
    linear = by_name["torch.nn.modules.linear.Linear"]
    assert (linear.severity, linear.deeds, linear.count) == ("unknown", ("import", "call", "build"), 2)


def test_torchscript_is_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "script.pt"
    torch.jit.script(Net()).save(path)

    file = scanned(path)

    assert (file.form, file.verdict) == ("TorchScript archive", "unknown")
    assert file.n_pickles > 2  # the deflated ones of the source code too
    assert any("TorchScript program" in finding.message for finding in file.findings)
    assert not any(finding.severity in {"dangerous", "unreadable"} for finding in file.findings)


def test_what_honest_files_hold_too_is_suspicious(tmp_path: Path) -> None:
    file = scanned_bytes(tmp_path, pickle.dumps(partial(max, 3)))

    assert file.verdict == "unknown"
    assert (file.findings[0].name, file.findings[0].severity) == ("functools.partial", "suspicious")


def test_arguments_make_a_suspicious_call_dangerous(tmp_path: Path) -> None:
    content = b"cbuiltins\ngetattr\n(ctorch.nn\nModule\nS'__globals__'\ntR."

    file = scanned_bytes(tmp_path, content)

    assert file.verdict == "dangerous"
    reasons = {finding.name: finding.message for finding in dangerous(file)}
    assert reasons["builtins.getattr"] == "reaches the internals of an object"


@pytest.mark.parametrize("n_left_out", [1, 3, 5])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pickle_that_breaks_off_has_run_by_then(
    payload: Payload, tmp_path: Path, protocol: int, n_left_out: int
) -> None:
    content = pickle.dumps([payload, *range(10)], protocol)[:-n_left_out]

    file = scanned_bytes(tmp_path, content)

    assert file.verdict == "dangerous"
    assert [finding.name for finding in dangerous(file)] == [f"{os.system.__module__}.system"]
    assert "unreadable" in {finding.severity for finding in file.findings}


def test_names_behind_what_cannot_be_run_are_swept(payload: Payload, tmp_path: Path) -> None:
    broken = b"\x80\x04]\x94(K\x01K\x02\x86\x82\x07"  # asks a registry for class 7
    content = broken + pickle.dumps(payload, 4)[2:]

    file = scanned_bytes(tmp_path, content)

    assert file.verdict == "dangerous"
    assert dangerous(file)[0].is_swept
    assert any(finding.deeds == ("extension",) for finding in file.findings)
    assert any(finding.severity == "unreadable" for finding in file.findings)


def test_several_pickles_one_after_another(payload: Payload, tmp_path: Path) -> None:
    first, second = pickle.dumps({"a": 1}), pickle.dumps(payload)

    file = scanned_bytes(tmp_path, first + second)

    assert file.n_pickles == 2
    assert_finds_the_payload(file, payload)
    assert dangerous(file)[0].position > len(first)


def test_bytes_after_the_end_are_reported(tmp_path: Path) -> None:
    content = pickle.dumps({"a": 1})

    file = scanned_bytes(tmp_path, content + b"garbage")

    (finding,) = file.findings
    assert (finding.severity, finding.position) == ("unknown", len(content))
    assert finding.message == "7 bytes follow the end of the pickle"


def test_a_long_pickle_with_the_payload_at_its_end(payload: Payload, tmp_path: Path) -> None:
    file = scanned_bytes(tmp_path, pickle.dumps(["x" * 5_000_000, payload]))

    assert_finds_the_payload(file, payload)


def test_a_long_text_pickle_with_the_payload_at_its_end(payload: Payload, tmp_path: Path) -> None:
    tmp_path.joinpath("notes").write_bytes(pickle.dumps(["x" * 200_000, payload], 0))

    assert_finds_the_payload(scanned(tmp_path), payload)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_member_of_a_zip_is_looked_at(
    payload: Payload, tmp_path: Path, compression: int, protocol: int
) -> None:
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("folder/readme.txt", "nothing " * 10_000)
        archive.writestr("folder/first.bin", pickle.dumps({"a": 1}, protocol))
        archive.writestr("folder/picture.png", pickle.dumps(payload, protocol))

    file = scanned(path)

    assert_finds_the_payload(file, payload, "picture.png")
    assert file.form == "zip archive"


def test_a_second_pickle_in_a_torch_archive(payload: Payload, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.randn(3)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/extra/data.pkl", pickle.dumps(payload))

    assert_finds_the_payload(scanned(path), payload, "extra/data.pkl")


def test_a_storage_that_nothing_refers_to(payload: Payload, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.randn(3)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/data/7", pickle.dumps(payload))

    file = scanned(path)

    assert_finds_the_payload(file, payload, "data/7")
    assert ("unknown", "data/7") in {(finding.severity, finding.member) for finding in file.findings}


def test_a_tensor_of_bytes_that_are_a_pickle_is_looked_at(payload: Payload, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    state = np.frombuffer(pickle.dumps(payload), np.uint8)  # as Transformer Engine keeps its state
    torch.save({"w": torch.tensor(state)}, path)

    assert_finds_the_payload(scanned(path), payload, "data/0")


@pytest.mark.parametrize(("name", "compress"), [("bzip2", bz2.compress), ("xz", lzma.compress)])
def test_other_compression_is_unreadable(tmp_path: Path, name: str, compress: Callable[[bytes], bytes]) -> None:
    file = scanned_bytes(tmp_path, compress(pickle.dumps(1)))

    assert file.verdict == "unreadable"
    assert name in file.findings[0].message


def test_archives_in_archives(payload: Payload, tmp_path: Path) -> None:
    content = pickle.dumps(payload)
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            archive.writestr("inner", content)
        content = buffer.getvalue()

    assert_finds_the_payload(scanned_bytes(tmp_path, content), payload, "inner/inner")


def test_too_many_archives_in_each_other_are_unreadable(tmp_path: Path) -> None:
    content = pickle.dumps(1)
    for _ in range(6):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("inner", content)
        content = buffer.getvalue()

    file = scanned_bytes(tmp_path, content)

    assert file.verdict == "unreadable"


def test_a_zip_behind_a_pickle(payload: Payload, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("hidden", pickle.dumps(payload))

    file = scanned_bytes(tmp_path, pickle.dumps({"a": 1}) + buffer.getvalue())

    assert_finds_the_payload(file, payload, "hidden")
    assert any("also a zip archive" in finding.message for finding in file.findings)


def test_a_member_that_stands_twice_is_looked_at_twice(payload: Payload, tmp_path: Path) -> None:
    path = tmp_path / "archive.zip"
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data", pickle.dumps(1))
        archive.writestr("a/data", pickle.dumps(payload))

    assert_finds_the_payload(scanned(path), payload, "data")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_numpy_archives(payload: Payload, tmp_path: Path, save: Callable[..., None]) -> None:
    save(tmp_path / "clean.npz", a=np.arange(10), b=np.ones((3, 4)), names=np.array(["a", "b"]))
    objects = np.array([payload, None], dtype=object)
    save(tmp_path / "evil.npz", a=np.arange(10), o=objects)

    assert scan(tmp_path / "clean.npz").is_clean
    assert_finds_the_payload(scanned(tmp_path / "evil.npz"), payload, "o.npy")


def test_numpy_arrays(payload: Payload, tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.arange(10))
    np.save(tmp_path / "objects.npy", np.array([1, "x", None], dtype=object), allow_pickle=True)
    np.save(tmp_path / "fields.npy", np.array([(1, payload)], dtype=[("a", int), ("b", object)]), allow_pickle=True)

    assert scanned(tmp_path / "numbers.npy").form == "NumPy array"
    assert scan(tmp_path / "numbers.npy").is_clean
    assert scan(tmp_path / "objects.npy").is_clean
    assert_finds_the_payload(scanned(tmp_path / "fields.npy"), payload)


def test_a_tar_archive_with_a_torch_file(payload: Payload, tmp_path: Path) -> None:
    torch.save({"w": torch.randn(3)}, tmp_path / "clean.ckpt")
    torch.save({"w": payload}, tmp_path / "evil.ckpt")
    long_name = "folder/" + "n" * 150 + ".ckpt"
    for tar_format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        path = tmp_path / "model.nemo"
        with tarfile.open(path, "w", format=tar_format) as archive:
            archive.add(tmp_path / "clean.ckpt", "model_weights.ckpt")
            archive.add(tmp_path / "evil.ckpt", long_name)

        file = scanned(path)

        assert_finds_the_payload(file, payload, f"{long_name}/data.pkl")
        assert (file.form, file.n_pickles) == ("tar archive", 2)


def test_a_distributed_checkpoint(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        torch.distributed.checkpoint.save(
            {"model": Net().state_dict(), "step": 3}, checkpoint_id=tmp_path / "dcp", no_dist=True
        )

    files = {Path(file.path).name: file for file in scan(tmp_path / "dcp").files}

    assert files["__0_0.distcp"].verdict == "clean"
    assert files["__0_0.distcp"].n_pickles == 5  # each tensor is an archive of its own
    assert files[".metadata"].verdict in {"clean", "unknown"}


def test_safetensors_hold_no_code(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(Net().state_dict(), path)

    assert scan(path).is_clean
    assert scanned(path).form == "safetensors"

    path.write_bytes(path.read_bytes()[:-1])
    assert scan(path).verdict == "unreadable"


def test_keras_layers_that_carry_code(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(path, "w", compression) as archive:
            archive.writestr("config.json", json.dumps({"layers": [{"class_name": "Lambda", "config": {}}]}))

        file = scanned(path)

        assert file.verdict == "unknown"
        assert "Lambda" in file.findings[0].message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        b"\x80\x04",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02" + b"(" * 100_000,
        b"\x80\x02r\xff\xff\xff\xff.",
        b"\x1f\x8b\x08",
        b"version https://git-lfs.github.com/spec/v1\n",
        bytes(range(256)) * 4,
    ],
)
def test_a_broken_file_is_unreadable(tmp_path: Path, content: bytes) -> None:
    file = scanned_bytes(tmp_path, content, "model.pt")

    assert file.verdict == "unreadable"
    assert file.findings[0].message


@pytest.mark.parametrize("n_left_out", [1, 22, 100, 1000])
def test_a_cut_torch_file_is_unreadable(tmp_path: Path, n_left_out: int) -> None:
    path = tmp_path / "model.pt"
    torch.save(Net().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-n_left_out])

    assert scan(path).verdict == "unreadable"


def test_a_legacy_file_with_a_missing_storage_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.randn(100)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:-8])

    assert scan(path).verdict == "unreadable"


def test_a_changed_zip_header_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"w": torch.randn(3)}, path)
    content = bytearray(path.read_bytes())
    content[30] ^= 1  # the first name, which then is another than in the directory
    path.write_bytes(content)

    file = scanned(path)

    assert file.verdict == "unreadable"
    assert "data.pkl" in " ".join(finding.message for finding in file.findings)


def test_a_decompression_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\x80\x04\x8e" + struct.pack("<Q", 2**28) + bytes(2**28))

    assert scan(path).verdict == "unreadable"


def test_a_directory(payload: Payload, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    torch.save(Net().state_dict(), folder / "a.bin")
    (folder / "b.pkl").write_bytes(pickle.dumps(payload))
    (folder / "sub" / "c.pt").write_bytes(b"not a checkpoint")
    (folder / "README.md").write_text("# A model\n\nconda\npython\n")
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "script.py").write_text("import os\n\nos.system('true')\n")
    (folder / "link.bin").symlink_to("a.bin")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    calls: list[tuple[int, int]] = []

    report = scan(folder, progress=lambda done, total: calls.append((done, total)))

    assert [(Path(file.path).relative_to(folder).as_posix(), file.verdict) for file in report.files] == [
        ("a.bin", "clean"),
        ("b.pkl", "dangerous"),
        ("link.bin", "clean"),
        ("sub/c.pt", "unreadable"),
    ]
    assert (report.verdict, report.n_skipped, report.paths) == ("dangerous", 3, (str(folder),))
    assert calls[-1][0] == calls[-1][1] > 0


def test_several_paths(payload: Payload, tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "a.pt")
    (tmp_path / "b.pkl").write_bytes(pickle.dumps(payload))

    assert scan(tmp_path / "a.pt", tmp_path / "b.pkl").verdict == "dangerous"
    assert len(scan(tmp_path / "a.pt", tmp_path).files) == 3


def test_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    (tmp_path / "dangling").symlink_to("nowhere.pt")
    for name, message in {
        "missing.pt": "No such file or directory: .*missing.pt",
        "dangling": "a link to a file that does not exist .*found nowhere.pt",
        "empty": "no files in the directory",
    }.items():
        with pytest.raises(SourceMissingError, match=message):
            scan(tmp_path / name)


def test_a_directory_of_texts_is_clean(tmp_path: Path) -> None:
    for name in ("LICENSE", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "names.txt").write_text("cat\ndog\nRabbit\n")
    (tmp_path / "zeros").write_bytes(bytes(100_000))
    (tmp_path / "base64").write_bytes(b"SGVsbG8" * 30_000)

    report = scan(tmp_path)

    assert (report.files, report.n_skipped, report.verdict) == ((), 9, "clean")


@pytest.mark.parametrize("code", ["at.py", "deep/at.cpython-311-x86_64-linux-gnu.so", "at/__init__.py", "at/dog.pyc"])
def test_a_text_that_imports_code_beside_it_is_listed(tmp_path: Path, code: str) -> None:
    (tmp_path / "names.txt").write_text("cat\ndog\nRabbit\n")
    assert scan(tmp_path).verdict == "clean"
    (tmp_path / code).parent.mkdir(exist_ok=True)
    (tmp_path / code).write_text("print('this runs')")

    (found,) = scan(tmp_path).files
    assert (Path(found.path).name, found.verdict) == ("names.txt", "unknown")
    assert "at.dog" in {finding.name for finding in found.findings}


@pytest.fixture
def report(tmp_path: Path) -> ScanReport:
    (tmp_path / "evil ü.pkl").write_bytes(pickle.dumps(Payload("touch it\x1b[31m\x7f")))
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04")
    torch.save(Net(), tmp_path / "module.pt")
    return scan(tmp_path)


def test_json_holds_everything(report: ScanReport) -> None:
    text = report.to_json()
    document = json.loads(text)

    assert text.isascii()
    assert not any(ord(char) < 32 or char == "\x7f" for char in text.replace("\n", ""))
    assert document["verdict"] == "dangerous"
    assert [file["verdict"] for file in document["files"]] == ["unreadable", "dangerous", "unknown"]
    (finding,) = document["files"][1]["findings"]
    assert finding["name"] == f"{os.system.__module__}.system"
    assert finding["deeds"] == ["import", "call"]
    assert finding["arguments"] == [repr(("touch it\x1b[31m\x7f",)).replace(",)", ")")]


def test_sarif_is_what_code_scanning_reads(report: ScanReport) -> None:
    text = report.to_sarif()
    document = json.loads(text)

    assert text.isascii()
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-2.1.0.json")
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "tensorkeep"
    assert len(run["results"]) == len(report.findings)
    for result in run["results"]:
        rule = driver["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert rule["defaultConfiguration"]["level"] == result["level"]
        assert result["level"] in {"error", "warning", "note"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert run["artifacts"][artifact["index"]]["location"]["uri"] == artifact["uri"]
        assert artifact["uri"].startswith("file:///")
        assert " " not in artifact["uri"]
    levels = {result["ruleId"]: result["level"] for result in run["results"]}
    assert levels == {"dangerous": "error", "unreadable": "error", "unknown": "note"}
    regions = [result["locations"][0]["physicalLocation"].get("region") for result in run["results"]]
    assert any(region and region["byteOffset"] > 0 for region in regions)


def test_relative_paths_stay_relative_in_sarif(
    report: ScanReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    document = json.loads(scan("evil ü.pkl").to_sarif())

    assert document["runs"][0]["artifacts"][0]["location"]["uri"] == "evil%20%C3%BC.pkl"
