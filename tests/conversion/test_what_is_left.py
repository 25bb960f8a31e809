"""What a conversion says of all that no file of tensors can hold, and what it refuses rather than lose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.conversion import convert
from tensorkeep.errors import DtypeError, LimitError, UnsafeError, UnsupportedError
from tensorkeep.formats.pickles import PickleLimits
from tensorkeep.pickled import _file as pickle_file


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


def test_a_converted_array_is_not_called_lost(tmp_path: Path) -> None:
    torch.save({("a",): np.ones(3, np.float32), "w": torch.ones(1)}, tmp_path / "a.pt")
    torch.save(np.ones(3, np.float32), tmp_path / "alone.pt")

    assert not convert(tmp_path / "a.pt", tmp_path / "safe").plain
    assert set(tensorkeep.load(tmp_path / "safe")) == {"('a',)", "w"}
    assert not convert(tmp_path / "alone.pt", tmp_path / "other").plain


def test_arrays_of_numbers_that_no_tensor_has_are_refused(tmp_path: Path) -> None:
    fields = np.array([(1.5, 2)], dtype=[("a", "f4"), ("b", "i8")])
    content = {"w": torch.ones(1), "c": np.ones(2, np.complex128), "texts": np.array(["a"])}
    torch.save(content, tmp_path / "a.pt")
    torch.save({"w": torch.ones(1), "s": fields}, tmp_path / "fields.pt")

    with pytest.raises(DtypeError, match=r"1 array .*`c` .*drop="):
        convert(tmp_path / "a.pt", tmp_path / "safe")
    with pytest.raises((DtypeError, UnsafeError), match="`s`"):
        convert(tmp_path / "fields.pt", tmp_path / "safe")

    assert convert(tmp_path / "a.pt", tmp_path / "safe", drop="c").plain == {"texts": "array of <U1, shape [1]"}


def test_an_array_of_objects_is_left_out_once(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1), "o": np.array([1, "x"], dtype=object)}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe", drop_unknown=True)

    assert list(conversion.left_out) == ["o"]
    assert "o" not in conversion.plain


def test_lists_of_numbers_and_settings_of_composites_are_one_entry_each(tmp_path: Path) -> None:
    mask = torch.eye(2).to_sparse().coalesce()
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 10, torch.qint8)
    torch.save({"mask": mask, "q": quantized, "steps": list(range(700)), "none": []}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe")

    assert conversion.composites == {"mask": "sparse_coo", "q": "per_tensor_affine"}
    assert conversion.plain["mask"] == "shape (2, 2), is_coalesced True"
    assert "scale 0.5, zero_point 10" in conversion.plain["q"]
    assert conversion.plain["steps"] == "[0, 1, 2, 3, 4, 5, …]"
    assert conversion.n_plain == 3


class Config:
    """An object that is not known to be data."""


def test_equal_names_of_several_sources_are_all_listed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        torch.save({name: torch.ones(1), "epoch": name, "config": Config()}, tmp_path / f"{name}.pt")

    conversion = convert([tmp_path / "a.pt", tmp_path / "b.pt"], tmp_path / "safe", drop_unknown=True)

    assert conversion.plain == {"epoch": "'a'", f"{tmp_path / 'b.pt'}:epoch": "'b'"}
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
        assert file.metadata == {"format": "pt", "b": "mine", "c": "w"}
        assert set(file) == {"w", "format", "b"}


def test_ties_stand_in_each_shard(tmp_path: Path) -> None:
    tied = torch.ones(4)
    torch.save({"w": tied, "x": torch.zeros(4), "tied": tied}, tmp_path / "a.pt")

    conversion = convert(tmp_path / "a.pt", tmp_path / "safe", max_shard_size=16)

    assert len(conversion.files) == 2
    for name in conversion.files:
        assert tensorkeep.open(tmp_path / "safe" / name).metadata["tied"] == "w"


def test_views_that_repeat_few_bytes_are_not_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickle_file, "MAX_EXPANDED_NBYTES", 1000)
    expanded = {f"w{place}": torch.ones(1).expand(10_000 + place) for place in range(10)}
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
    original = pickle_file.read_pickle
    monkeypatch.setattr(pickle_file, "read_pickle", lambda *a, **k: (read.append(a), original(*a, **k))[1])

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
        convert(tmp_path / "a.pt", tmp_path / destination)
    assert (tmp_path / "a.pt").read_bytes() == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]
