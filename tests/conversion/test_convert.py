"""Checkpoints of torch.save written as safetensors: all tensors, nothing run, the old or the new at any instant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

import tensorkeep
from tensorkeep.conversion import convert
from tensorkeep.errors import (
    DtypeError,
    IntegrityError,
    PickleError,
    RefusedError,
    SourceChangedError,
    SourceMissingError,
    TensorNotFoundError,
    UnsafeError,
    UnsupportedError,
)

Tensors = dict[str, torch.Tensor]


def weights(n: int = 4) -> Tensors:
    torch.manual_seed(0)
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    return {f"layers.{place}.weight": torch.randn(5, 3).to(dtypes[place % 4]) for place in range(n)}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_holds(path: Path, expected: Tensors) -> None:
    """Read with the reference, and check that the digests are those of the bytes."""
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    found = {name: tensor for file in files for name, tensor in safetensors.torch.load_file(file).items()}
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    assert tensorkeep.verify(path).is_whole


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


class Config:
    def __init__(self) -> None:
        self.hidden_size = 3


def header_metadata(path: Path) -> set[tuple[str, str]]:
    """Return keys and texts as any reader of the format finds them."""
    with safetensors.safe_open(path, "pt") as file:
        return set(file.metadata().items())


def damage(path: Path, tensor: torch.Tensor) -> None:
    """Change one byte of a tensor in a file, and nothing else."""
    content = bytearray(path.read_bytes())
    place = content.index(tensor.numpy().tobytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_state_dict_becomes_one_file(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "model.pt")

    conversion = convert(tmp_path / "model.pt", tmp_path / "safe")

    assert names_in(tmp_path / "safe") == ["model.safetensors"]
    assert_holds(tmp_path / "safe", weights())
    assert (conversion.n_tensors, conversion.nbytes, conversion.files) == (4, 240, ("model.safetensors",))
    assert (conversion.is_checked, conversion.n_summed, conversion.index) == (True, 4, None)
    assert not any((conversion.ties, conversion.overlapped, conversion.left_out, conversion.n_values))
    assert conversion.has_tree


def test_a_file_by_its_own_name(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "model.ckpt")

    conversion = convert(tmp_path / "model.ckpt", tmp_path / "other.safetensors", metadata={"a": "b"})

    assert names_in(tmp_path) == ["model.ckpt", "other.safetensors"]
    assert_holds(tmp_path / "other.safetensors", weights())
    assert conversion.files == ("other.safetensors",)
    assert tensorkeep.open(tmp_path / "other.safetensors").metadata == {"format": "pt", "a": "b"}


def test_shards(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "model.pt")

    conversion = convert(
        tmp_path / "model.pt", tmp_path / "safe", max_shard_size=100, output_variant="fp16", sha256=True
    )

    assert conversion.index == "model.safetensors.index.fp16.json"
    assert conversion.files == tuple(f"model.fp16-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
    assert_holds(tmp_path / "safe", weights())
    assert tensorkeep.verify(tmp_path / "safe").n_sha256 == 3


@pytest.mark.parametrize(
    "form", ["zip", "legacy", "protocol 5", "torchscript", "big endian", "without sums", "pickle of arrays"]
)
def test_all_forms(tmp_path: Path, form: str) -> None:
    path, expected = tmp_path / "source.pt", weights()
    if form == "torchscript":
        module = torch.nn.Linear(3, 4)
        torch.jit.save(torch.jit.script(module), path)
        expected = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    elif form == "big endian":
        expected = {"w": torch.arange(6, dtype=torch.float32).reshape(2, 3)}
        save_big_endian(expected["w"], path)
    elif form == "without sums":
        torch.serialization.set_crc32_options(compute_crc32=False)
        torch.save(expected, path)
        torch.serialization.set_crc32_options(compute_crc32=True)
    elif form == "pickle of arrays":
        expected = {"w": torch.arange(6, dtype=torch.float32).reshape(2, 3)}
        torch.save({"w": expected["w"].numpy()}, path)
    else:
        options = {"legacy": {"_use_new_zipfile_serialization": False}, "protocol 5": {"pickle_protocol": 5}}
        torch.save(expected, path, **options.get(form, {}))

    conversion = convert(path, tmp_path / "safe", drop_unknown=form == "torchscript")

    assert_holds(tmp_path / "safe", expected)
    assert bool(conversion.n_summed) == (form in {"zip", "protocol 5", "torchscript", "big endian"})


def save_big_endian(tensor: torch.Tensor, path: Path) -> None:
    """Write what torch writes on a machine of the other byte order."""
    torch.save({"w": tensor}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            if name.endswith("/byteorder"):
                data = b"big"
            elif "/data/" in name:
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            archive.writestr(name, data)


def test_a_payload_is_refused_or_left_out_and_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "MARKER"
    torch.save({**weights(), "extra": Payload(marker)}, tmp_path / "evil.pt")

    with pytest.raises(UnsafeError, match=r"posix\.system.*Nothing was run.*tensorkeep scan.*drop_unknown=True"):
        convert(tmp_path / "evil.pt", tmp_path / "safe")
    assert names_in(tmp_path) == ["evil.pt"]

    conversion = convert(tmp_path / "evil.pt", tmp_path / "safe", drop_unknown=True)

    assert_holds(tmp_path / "safe", weights())
    assert conversion.left_out == {"extra": "posix.system"}
    assert not marker.exists()
    torch.load(tmp_path / "evil.pt", weights_only=False)
    assert marker.exists(), "the payload works"


def test_an_object_is_refused_by_name_unless_it_is_not_wanted(tmp_path: Path) -> None:
    torch.save({"state_dict": weights(), "config": Config()}, tmp_path / "model.ckpt")

    with pytest.raises(UnsafeError, match=r"1 object not known to be data .*`config`: .*test_convert\.Config"):
        convert(tmp_path / "model.ckpt", tmp_path / "safe")
    convert(tmp_path / "model.ckpt", tmp_path / "selected", select="state_dict.*", strip_prefix="state_dict.")
    convert(tmp_path / "model.ckpt", tmp_path / "dropped", drop="config", strip_prefix="state_dict.")

    assert_holds(tmp_path / "selected", weights())
    assert_holds(tmp_path / "dropped", weights())


def test_a_checkpoint_of_a_trainer(tmp_path: Path) -> None:
    linear = torch.nn.Linear(3, 2)
    adam = torch.optim.AdamW(linear.parameters())
    linear(torch.ones(1, 3)).sum().backward()
    adam.step()
    content = {
        "state_dict": linear.state_dict(),
        "optimizer_states": [adam.state_dict()],
        "epoch": 7,
        "hyper_parameters": Namespace(lr=0.5, name="x" * 500),
        "activation": torch.nn.ReLU,
    }
    torch.save(content, tmp_path / "last.ckpt")

    conversion = convert(tmp_path / "last.ckpt", tmp_path / "safe", drop_unknown=True)

    found = tensorkeep.load(tmp_path / "safe")
    assert list(found) == ["state_dict", "optimizer_states", "epoch", "hyper_parameters"]
    assert torch.equal(found["state_dict"]["weight"], linear.weight)
    assert found["state_dict"]._metadata == content["state_dict"]._metadata
    state = content["optimizer_states"][0]["state"][1]["exp_avg"]
    assert torch.equal(found["optimizer_states"][0]["state"][1]["exp_avg"], state)
    assert found["optimizer_states"][0]["param_groups"] == content["optimizer_states"][0]["param_groups"]
    assert (found["epoch"], found["hyper_parameters"]) == (7, {"lr": 0.5, "name": "x" * 500})
    assert "optimizer_states.0.state.1.exp_avg" in tensorkeep.open(tmp_path / "safe")
    assert conversion.left_out == {"activation": "torch.nn.modules.activation.ReLU"}
    assert conversion.n_values > 10


def test_ties_are_stored_once_and_views_each_on_its_own(tmp_path: Path) -> None:
    base = torch.arange(20.0)
    tied = torch.randn(4, 4)
    tensors = {
        "a": tied,
        "b": tied,
        "c": tied.view(4, 4),
        "turned": tied.t(),
        "flat": tied.view(-1),
        "left": base[:12],
        "right": base[8:],
        "alone": base.clone()[4:8],
        "spread": torch.ones(1).expand(3, 2),
    }
    torch.save(tensors, tmp_path / "model.pt")

    conversion = convert(tmp_path / "model.pt", tmp_path / "safe", rename={"a": "z"})

    assert conversion.ties == {"b": "z", "c": "z"}
    assert conversion.overlapped == (("flat", "turned", "z"), ("left", "right"))
    assert header_metadata(tmp_path / "safe" / "model.safetensors") >= {("format", "pt"), ("b", "z"), ("c", "z")}
    with tensorkeep.open(tmp_path / "safe") as file:
        assert set(file) == {"z", *tensors} - {"a"}
        assert torch.equal(torch.from_numpy(file["c"].load()), tied)
    expected = {name: tensor.contiguous() for name, tensor in tensors.items() if name not in {"b", "c"}}
    expected["z"] = expected.pop("a")
    assert_holds(tmp_path / "safe", expected)


def test_the_reference_gives_ties_back_to_a_model(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(5, 3)
            self.head = torch.nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    model, other = Tied(), Tied()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    convert(tmp_path / "model.pt", tmp_path / "model.safetensors")

    missing, unexpected = safetensors.torch.load_model(other, tmp_path / "model.safetensors")

    assert not missing
    assert not unexpected
    assert torch.equal(other.head.weight, model.embedding.weight)


def test_composites_are_taken_apart(tmp_path: Path) -> None:
    sparse = torch.eye(3).to_sparse()
    torch.save({"s": sparse, "w": torch.ones(2)}, tmp_path / "model.pt")

    conversion = convert(tmp_path / "model.pt", tmp_path / "safe")

    assert conversion.composites == {"s": "sparse_coo"}
    expected = {"s.indices": sparse.indices(), "s.values": sparse.values(), "w": torch.ones(2)}
    assert_holds(tmp_path / "safe", expected)
    found = tensorkeep.load(tmp_path / "safe")["s"]
    assert (found.layout, found.is_coalesced()) == (torch.sparse_coo, True)
    assert torch.equal(found.to_dense(), torch.eye(3))


def test_what_the_format_cannot_hold_is_refused_with_a_way_out(tmp_path: Path) -> None:
    content = {"w": torch.ones(2), "z": torch.ones(2, dtype=torch.complex128), "m": torch.empty(9, device="meta")}
    torch.save(content, tmp_path / "model.pt")

    with pytest.raises(UnsupportedError, match=r"1 tensor without data.*`m`.*drop="):
        convert(tmp_path / "model.pt", tmp_path / "safe")
    with pytest.raises(DtypeError, match=r"`z` C128.*drop="):
        convert(tmp_path / "model.pt", tmp_path / "safe", select=["w", "z"])
    convert(tmp_path / "model.pt", tmp_path / "safe", drop=["m", "z"])
    assert_holds(tmp_path / "safe", {"w": torch.ones(2)})

    convert(tmp_path / "model.pt", tmp_path / "whole", drop="m")
    assert_holds(tmp_path / "whole", {"w": torch.ones(2), "z": torch.view_as_real(content["z"])})
    assert torch.equal(tensorkeep.load(tmp_path / "whole")["z"], content["z"])


def test_several_sources_and_all_changes(tmp_path: Path) -> None:
    torch.save({"m.a": torch.ones(2), "m.b": torch.zeros(2)}, tmp_path / "one.pt")
    tensorkeep.save({"m.c": np.full(2, 3.0, np.float32)}, tmp_path / "two.safetensors", metadata={"step": "7"})

    convert(
        [tmp_path / "one.pt", tmp_path / "two.safetensors"],
        tmp_path / "safe",
        drop="*.b",
        rename={"m.a": "m.x"},
        strip_prefix="m.",
        cast="bf16",
    )

    dtype = torch.bfloat16
    assert_holds(tmp_path / "safe", {"x": torch.ones(2, dtype=dtype), "c": torch.full((2,), 3.0, dtype=dtype)})
    assert tensorkeep.open(tmp_path / "safe").metadata["step"] == "7"
    with pytest.raises(RefusedError, match="in two of the checkpoints"):
        convert([tmp_path / "one.pt", tmp_path / "one.pt"], tmp_path / "other")
    with pytest.raises(TensorNotFoundError, match="nothing to drop"):
        convert(tmp_path / "one.pt", tmp_path / "other", drop="nothing")


def test_sets_and_directories(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / "source" / f"mp_rank_0{rank}"
        folder.mkdir(parents=True)
        torch.save({"model": {"w": torch.full((2,), float(rank))}, "n": rank}, folder / "model_optim_rng.pt")

    conversion = convert(tmp_path / "source", tmp_path / "safe")

    expected = {f"mp_rank_0{rank}.model_optim_rng.model.w": torch.full((2,), float(rank)) for rank in (0, 1)}
    assert_holds(tmp_path / "safe", expected)
    assert conversion.n_values == 2
    found = tensorkeep.load(tmp_path / "safe")
    assert list(found) == [f"mp_rank_0{rank}/model_optim_rng.pt" for rank in (0, 1)]
    assert found["mp_rank_01/model_optim_rng.pt"]["n"] == 1


def test_beside_the_source(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "pytorch_model.bin")

    convert(tmp_path, tmp_path)

    assert names_in(tmp_path) == ["model.safetensors", "pytorch_model.bin"]
    assert_holds(tmp_path / "model.safetensors", weights())


@pytest.mark.parametrize(("content", "what"), [({"a": 1}, "no tensors"), (3, "no tensors")])
def test_nothing_to_convert(tmp_path: Path, content: object, what: str) -> None:
    torch.save(content, tmp_path / "model.pt")

    with pytest.raises(UnsupportedError, match=what):
        convert(tmp_path / "model.pt", tmp_path / "safe")
    assert not (tmp_path / "safe").exists()


def test_wrong_places(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "model.pt")

    with pytest.raises(SourceMissingError):
        convert(tmp_path / "missing.pt", tmp_path / "safe")
    with pytest.raises(UnsupportedError, match="name of a shard"):
        convert(tmp_path / "model.pt", tmp_path / "model-00001-of-00002.safetensors")
    with pytest.raises(UnsupportedError, match="nothing to convert"):
        convert([], tmp_path / "safe")
    assert names_in(tmp_path) == ["model.pt"]


def test_damage_is_found_by_the_sums_of_the_archive(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "model.pt")
    damage(tmp_path / "model.pt", weights()["layers.0.weight"])

    with pytest.raises(IntegrityError, match=r"`layers\.0\.weight`.*CRC-32"):
        convert(tmp_path / "model.pt", tmp_path / "safe")
    assert names_in(tmp_path) == ["model.pt"]

    assert convert(tmp_path / "model.pt", tmp_path / "safe", drop="layers.0.*").n_summed == 3
    assert not convert(tmp_path / "model.pt", tmp_path / "safe", check=False, overwrite=True).is_checked
    assert tensorkeep.verify(tmp_path / "safe").is_whole


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    torch.save(weights(), tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    content = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(content[:-10])

    with pytest.raises(PickleError):
        convert(tmp_path / "model.pt", tmp_path / "safe")
    assert names_in(tmp_path) == ["model.pt"]


def large(n_mb: int = 24) -> Tensors:
    return {f"w{place:02}": torch.full((250_000,), float(place)) for place in range(n_mb)}


class _Stop(Exception):
    """Ends a conversion."""


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_exception_from_progress_leaves_what_was_there(tmp_path: Path, share: float) -> None:
    torch.save(large(), tmp_path / "model.pt")
    tensorkeep.save_checkpoint({"old": np.ones(2)}, tmp_path / "safe")
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done > share * total:
            raise _Stop

    with pytest.raises(_Stop):
        convert(tmp_path / "model.pt", tmp_path / "safe", overwrite=True, progress=stop)

    assert names_in(tmp_path / "safe") == ["model.safetensors"]
    assert list(tensorkeep.open(tmp_path / "safe")) == ["old"]
    assert seen == sorted(seen)


def test_progress_counts_checks_and_writes(tmp_path: Path) -> None:
    torch.save(large(), tmp_path / "model.pt")
    seen: list[tuple[int, int]] = []

    convert(tmp_path / "model.pt", tmp_path / "safe", progress=lambda *both: seen.append(both))

    assert seen[-1] == (72_000_000, 72_000_000)
    assert {total for _, total in seen} == {72_000_000}


def test_a_source_that_changes_meanwhile(tmp_path: Path) -> None:
    torch.save(large(), tmp_path / "model.pt")

    def change(done: int, total: int) -> None:
        if done > 0.9 * total:
            torch.save({"other": torch.ones(3)}, tmp_path / "new.pt")
            (tmp_path / "new.pt").replace(tmp_path / "model.pt")

    with pytest.raises(SourceChangedError):
        convert(tmp_path / "model.pt", tmp_path / "safe", progress=change)
    assert not (tmp_path / "safe").exists()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    torch.save(large(), tmp_path / "model.pt")
    damaged: list[Path] = []

    def damage_staged(done: int, total: int) -> None:
        if done >= total * 2 / 3 and not damaged:  # all is written, and is read back from here on
            damaged.extend((tmp_path / "safe").glob(".*/*.safetensors"))
            with damaged[0].open("r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"\xff")

    with pytest.raises(IntegrityError, match="not those that were saved"):
        convert(tmp_path / "model.pt", tmp_path / "safe", progress=damage_staged)
    assert damaged
    assert not (tmp_path / "safe").exists()


CHILD = """
import os, signal, sys
from pathlib import Path
from tensorkeep.conversion import convert

source, destination, share = sys.argv[1:]

def kill(done, total):
    if done >= float(share) * total:
        os.kill(os.getpid(), signal.SIGKILL)

convert(source, destination, overwrite=True, durable=False, progress=kill)
status = Path("/proc/self/status").read_text()
print(status.partition("VmHWM:")[2].split()[0])
"""


def convert_in_child(source: Path, destination: Path, *, kill_at: float = 2.0) -> subprocess.CompletedProcess[str]:
    """Convert in a process that kills itself when it has done a share of its work."""
    command = [sys.executable, "-c", CHILD, str(source), str(destination), str(kill_at)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_kill_leaves_what_was_there(tmp_path: Path) -> None:
    torch.save(large(), tmp_path / "model.pt")
    tensorkeep.save_checkpoint({"old": np.ones(2)}, tmp_path / "safe")

    for share in (0.0, 0.3, 0.4, 0.6, 0.7, 1.0):
        assert convert_in_child(tmp_path / "model.pt", tmp_path / "safe", kill_at=share).returncode == -signal.SIGKILL
        assert list(tensorkeep.open(tmp_path / "safe")) == ["old"]
        assert tensorkeep.verify(tmp_path / "safe").is_whole

    assert convert_in_child(tmp_path / "model.pt", tmp_path / "safe").returncode == 0
    assert names_in(tmp_path / "safe") == ["model.safetensors"]
    assert_holds(tmp_path / "safe", large())


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.parametrize(
    ("kind", "max_nbytes"), [("plain", 150_000_000), ("legacy", 150_000_000), ("turned", 240_000_000)]
)
def test_memory_does_not_grow_with_the_checkpoint(tmp_path: Path, kind: str, max_nbytes: int) -> None:
    block = torch.zeros(4000, 5000)
    tensors = {f"w{place}": block.clone() for place in range(12 if kind == "plain" else 5)}
    if kind == "turned":
        tensors = {name: tensor.t() for name, tensor in tensors.items()}
    torch.save(tensors, tmp_path / "model.pt", _use_new_zipfile_serialization=kind != "legacy")

    done = convert_in_child(tmp_path / "model.pt", tmp_path / "safe")

    assert (tmp_path / "model.pt").stat().st_size > 390_000_000
    assert int(done.stdout) * 1024 < max_nbytes
