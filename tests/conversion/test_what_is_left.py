"""What a conversion keeps beside tensors, what it leaves out and says, and what it refuses rather than lose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch

import tensorkeep
from tensorkeep.conversion import convert
from tensorkeep.errors import LimitError, TensorNotFoundError, UnsupportedError
from tensorkeep.formats.pickles import PickleLimits
from tensorkeep.kinds.pickles import _open as opening


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(2, 3, device="meta")
        self.em = torch.nn.Embedding(4, 2)


def test_names_in_a_whole_module_are_those_of_its_state_dict(tmp_path: Path) -> None:
    torch.save(Net(), tmp_path / "net.pt")

    with pytest.raises(UnsupportedError, match=r"2 tensors without data.*`fc\.weight`, `fc\.bias`"):
        convert(tmp_path / "net.pt", tmp_path / "safe", drop_unknown=True)
    convert(tmp_path / "net.pt", tmp_path / "safe", drop_unknown=True, drop=["fc.weight", "fc.bias"])

    assert list(tensorkeep.load(tmp_path / "safe")) == ["em.weight"]


def test_arrays_have_the_names_of_a_state_dict(tmp_path: Path) -> None:
    torch.save({("a",): np.ones(3, np.float32), "w": torch.ones(1)}, tmp_path / "a.pt")
    torch.save(np.ones(3, np.float32), tmp_path / "alone.pt")

    assert not convert(tmp_path / "a.pt", tmp_path / "safe").n_values
    assert set(tensorkeep.open(tmp_path / "safe")) == {"('a',)", "w"}
    assert list(tensorkeep.load(tmp_path / "safe")) == [("a",), "w"]
    convert(tmp_path / "alone.pt", tmp_path / "other")
    assert list(tensorkeep.open(tmp_path / "other")) == ["tensor"]
    np.testing.assert_array_equal(tensorkeep.load(tmp_path / "other"), [1, 1, 1])


def test_arrays_that_no_tensor_is_like_are_kept_with_the_whole(tmp_path: Path) -> None:
    fields = np.array([(1.5, 2)], dtype=[("a", "f4"), ("b", "i8")])
    content = {"w": torch.ones(1), "c": np.ones(2, np.complex128), "texts": np.array(["a"]), "fields": fields}
    torch.save(content, tmp_path / "a.pt")

    whole = convert(tmp_path / "a.pt", tmp_path / "safe")
    chosen = convert(tmp_path / "a.pt", tmp_path / "chosen", drop="c")

    found = tensorkeep.load(tmp_path / "safe")
    assert [found[name].dtype for name in ("c", "texts", "fields")] == [np.complex128, np.dtype("<U1"), fields.dtype]
    assert found["fields"].tolist() == fields.tolist()
    assert (whole.has_tree, whole.n_values) == (True, 3)
    assert (chosen.has_tree, chosen.n_values) == (False, 0)
    assert list(tensorkeep.open(tmp_path / "chosen")) == ["w"]


def test_an_array_of_objects_is_left_out_once(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1), "o": np.array([1, "x"], dtype=object)}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe", drop_unknown=True)

    assert list(conversion.left_out) == ["o"]
    assert list(tensorkeep.load(tmp_path / "safe")) == ["w"]


def test_parts_of_composites_keep_the_dtype_that_they_need(tmp_path: Path) -> None:
    quantized = torch.quantize_per_channel(
        torch.ones(3, 2), torch.tensor([0.5, 0.1, 0.2], dtype=torch.float64), torch.zeros(3), 0, torch.qint8
    )
    content = {"q": quantized, "z": torch.ones(2, dtype=torch.complex128), "s": torch.eye(2).to_sparse()}
    torch.save(content, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe", cast="bf16")

    assert conversion.composites == {"q": "per_channel_affine", "s": "sparse_coo"}
    found = tensorkeep.load(tmp_path / "safe")
    assert torch.equal(found["q"].q_per_channel_scales(), quantized.q_per_channel_scales())
    assert found["z"].dtype == torch.complex128
    assert found["s"].dtype == torch.float32


def test_what_is_no_data_becomes_the_tensors_in_it(tmp_path: Path) -> None:
    torch.save({"net": torch.nn.Linear(2, 1), "list": [1, Config(), 3], Config: torch.ones(2)}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe", drop_unknown=True)

    found = tensorkeep.load(tmp_path / "safe")
    assert list(found["net"]) == ["weight", "bias"]
    assert found["list"] == [1, None, 3]
    assert conversion.left_out["list.1"].endswith(".Config")
    (key,) = [key for key in found if key.endswith("Config")]
    assert conversion.left_out[key] == "a key"
    assert {"net.weight", "net.bias", key} <= set(tensorkeep.open(tmp_path / "safe"))


class Config:
    """An object that is not known to be data."""


def test_equal_names_of_several_sources_are_all_listed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        torch.save({name: torch.ones(1), "epoch": name, "config": Config()}, tmp_path / f"{name}.pt")

    conversion = convert([tmp_path / "a.pt", tmp_path / "b.pt"], tmp_path / "safe", drop_unknown=True)

    assert (conversion.has_tree, conversion.n_values) == (False, 0)
    assert list(conversion.left_out) == ["config", f"{tmp_path / 'b.pt'}:config"]
    assert convert([tmp_path / "a.pt", tmp_path / "b.pt"], tmp_path / "other", drop="config").n_tensors == 2


@pytest.mark.parametrize("options", [{"output_variant": "fp16"}, {"base_name": "zzz"}, {"max_shard_size": 10}])
def test_what_is_for_directories_is_refused_beside_a_file_name(tmp_path: Path, options: dict[str, object]) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "a.pt")

    with pytest.raises(UnsupportedError, match=next(iter(options))):
        convert(tmp_path / "a.pt", tmp_path / "v.safetensors", **options)
    assert not (tmp_path / "v.safetensors").exists()


@pytest.mark.parametrize("name", ["a.pt", "out.bin", "out.pth.tar", "notes"])
def test_a_destination_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "a.pt")
    (tmp_path / "notes").write_text("text")

    with pytest.raises(UnsupportedError, match=r"such as .*\.safetensors"):
        convert(tmp_path / "a.pt", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "notes"]


def test_names_that_metadata_need_are_stored_and_no_aliases(tmp_path: Path) -> None:
    tied = torch.ones(2)
    torch.save({"w": tied, "format": tied, "b": tied, "c": tied}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "v.safetensors", metadata={"b": "mine"})

    assert conversion.ties == {"c": "w"}
    assert conversion.overlapped == (("b", "format", "w"),)
    with tensorkeep.open(tmp_path / "v.safetensors") as file:
        assert file.metadata == {"format": "pt", "b": "mine"}
        assert set(file) == {"w", "format", "b", "c"}
        assert set(file.entries) == {"w", "format", "b"}


def test_ties_stand_in_each_shard(tmp_path: Path) -> None:
    tied = torch.ones(4)
    torch.save({"w": tied, "x": torch.zeros(4), "tied": tied}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe", max_shard_size=16)

    assert len(conversion.files) == 2
    for name in conversion.files:
        with safetensors.safe_open(tmp_path / "safe" / name, "pt") as file:
            assert file.metadata()["tied"] == "w"
    assert set(tensorkeep.open(tmp_path / "safe")) == {"w", "x", "tied"}


def test_views_that_repeat_few_bytes_are_not_written_out(tmp_path: Path) -> None:
    expanded = {f"w{place}": torch.ones(1).expand(10_000_000 + place) for place in range(30)}
    torch.save(expanded, tmp_path / "a.pt")

    with pytest.raises(LimitError, match="many times the size of the file"):
        convert(tmp_path / "a.pt", tmp_path / "safe")
    assert not (tmp_path / "safe").exists()
    convert(tmp_path / "a.pt", tmp_path / "safe", select="w0")


def test_a_pickle_by_the_name_of_a_safetensors_file(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "lie.safetensors")

    with pytest.raises(tensorkeep.TensorkeepError, match="tensorkeep convert"):
        tensorkeep.open(tmp_path / "lie.safetensors")
    convert(tmp_path / "lie.safetensors", tmp_path / "safe")

    np.testing.assert_array_equal(tensorkeep.load(tmp_path / "safe")["w"], [1, 1])


def test_a_safetensors_file_by_any_name_is_what_open_takes_it_for(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(2, np.float32)}, tmp_path / "file.safetensors")
    (tmp_path / "file.safetensors").rename(tmp_path / "weights.bin")

    assert list(tensorkeep.open(tmp_path / "weights.bin")) == ["w"]
    assert convert(tmp_path / "weights.bin", tmp_path / "safe").n_tensors == 1


def test_a_bound_can_be_raised(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2), "keys": {float(place): 0 for place in range(20)}}, tmp_path / "a.pt")
    low = PickleLimits(max_opcodes=40)

    with pytest.raises(LimitError):
        convert(tmp_path / "a.pt", tmp_path / "safe", limits=low)
    assert convert(tmp_path / "a.pt", tmp_path / "safe", limits=PickleLimits()).n_tensors == 1


def test_a_pickle_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"turned": torch.arange(6.0).reshape(2, 3).t(), "w": torch.ones(2)}, tmp_path / "a.pt")
    read: list[object] = []
    original = opening.read_pickle
    monkeypatch.setattr(opening, "read_pickle", lambda *a, **k: (read.append(a), original(*a, **k))[1])

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe")

    assert (len(read), conversion.n_summed) == (1, 2)
    np.testing.assert_array_equal(tensorkeep.load(tmp_path / "safe")["turned"], [[0, 3], [1, 4], [2, 5]])


@pytest.mark.parametrize("destination", ["out/model.safetensors", "out"])
def test_a_link_to_the_source_is_no_destination(tmp_path: Path, destination: str) -> None:
    torch.save({"w": torch.ones(2), "epoch": 3}, tmp_path / "a.pt")
    before = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").symlink_to(tmp_path / "a.pt")

    with pytest.raises(UnsupportedError, match="is a source"):
        convert(tmp_path / "a.pt", tmp_path / destination, overwrite=True)
    assert (tmp_path / "a.pt").read_bytes() == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def test_a_wrong_pattern_is_reported_before_an_occupied_destination(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"w": np.zeros(2)}, tmp_path)

    with pytest.raises(TensorNotFoundError, match="nothing to drop"):
        convert(tmp_path, tmp_path, drop="zzz*")


def test_what_metadata_say_of_single_tensors_follows_them(tmp_path: Path) -> None:
    days, seconds = np.array(["2020-01-01"], "M8[D]"), np.array([3], "m8[s]")
    np.savez(tmp_path / "a.npz", allow_pickle=False, days=days, seconds=seconds, w=np.ones(2))

    def said(name: str, **options: object) -> str | None:
        path = tmp_path / f"{name}.safetensors"
        convert(tmp_path / "a.npz", path, **options)  # type: ignore[arg-type]
        with tensorkeep.open(path) as opened:
            return opened.metadata.get("numpy.types")

    assert said("all") == '{"days":"<M8[D]","seconds":"<m8[s]"}'
    assert said("dropped", drop="days") == '{"seconds":"<m8[s]"}'
    assert said("renamed", rename={"days": "d"}) == '{"d":"<M8[D]","seconds":"<m8[s]"}'
    assert said("plain", select="w") is None
    assert said("own", select="w", metadata={"numpy.types": "mine"}) == "mine"

    tensorkeep.join([tmp_path / "all.safetensors"], tmp_path / "joined", drop="seconds")
    with tensorkeep.open(tmp_path / "joined") as opened:
        assert opened.metadata["numpy.types"] == '{"days":"<M8[D]"}'


def test_joined_files_keep_what_each_says_of_its_tensors(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", allow_pickle=False, days=np.array(["2020-01-01"], "M8[D]"))
    np.savez(tmp_path / "b.npz", allow_pickle=False, seconds=np.array([3], "m8[s]"))
    for name in "ab":
        convert(tmp_path / f"{name}.npz", tmp_path / f"{name}.safetensors")
    said = {"numpy.types": '{"w":"<M8[D]","days":"<m8[s]"}', "own": "c"}  # it has no days
    tensorkeep.save({"w": np.ones(2)}, tmp_path / "c.safetensors", metadata=said)

    tensorkeep.join([tmp_path / f"{name}.safetensors" for name in "abc"], tmp_path / "joined")
    with tensorkeep.open(tmp_path / "joined") as opened:
        assert opened.metadata["numpy.types"] == '{"days":"<M8[D]","seconds":"<m8[s]","w":"<M8[D]"}'
        assert opened.metadata["own"] == "c"

    tensorkeep.save({"other": np.ones(2)}, tmp_path / "d.safetensors", metadata={"numpy.types": "free text"})
    tensorkeep.join([tmp_path / "a.safetensors", tmp_path / "d.safetensors"], tmp_path / "free")
    with tensorkeep.open(tmp_path / "free") as opened:
        assert opened.metadata["numpy.types"] == '{"days":"<M8[D]"}'


@pytest.mark.parametrize(
    ("options", "shapes"),
    [
        ({"rename": {"s.values": "t.values", "s.indices": "t.indices"}}, '{"t":[4,5]}'),
        ({"strip_prefix": "s."}, None),  # `values` and `indices` are no longer called as the parts of something
        ({"rename": {"s.values": "t.values"}}, None),
        ({"drop": "s.indices"}, None),
        ({"drop": "w"}, '{"s":[4,5]}'),
    ],
)
def test_shapes_of_sparse_tensors_follow_both_parts(
    options: dict[str, Any], shapes: str | None, tmp_path: Path
) -> None:
    tensors = {
        "s.values": np.ones(2),
        "s.indices": np.array([3, 7]),
        "s.w" if "strip_prefix" in options else "w": np.ones(1),
    }
    tensorkeep.save(tensors, tmp_path / "a.safetensors", metadata={"onnx.sparse": '{"s":[4,5]}'})

    convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", **options)
    with tensorkeep.open(tmp_path / "b.safetensors") as opened:
        assert opened.metadata.get("onnx.sparse") == shapes
