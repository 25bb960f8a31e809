"""Directories of torch.distributed.checkpoint, written by torch itself on four ranks and on one."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex

import tensorkeep
from tensorkeep import DistributedCheckpoint, Unknown
from tensorkeep.cli import main
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    LimitError,
    PickleError,
    SourceMissingError,
    TensorkeepError,
    TensorNotFoundError,
    UnsafeError,
    UnsupportedError,
)
from tests.support import SUPPORT, forks
from tests.support.many_ranks import FORMS, WHOLE, nested_of

NESTED = [form for form in FORMS if not form.startswith("hf")]
FLAT = [form for form in FORMS if form.startswith("hf")]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let four ranks save in every form; return the folder of all checkpoints."""
    folder = tmp_path_factory.mktemp("ranks")
    for done in forks.run_ranks(
        4, SUPPORT / "many_ranks.py", folder, modules=[forks.TRAINING, "torch.distributed.tensor"]
    ):
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copied(ranks: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copy(form: str) -> Path:
        return Path(shutil.copytree(ranks / form, tmp_path / "copy"))

    return copy


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return (
            list(found) != [] and found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
        )
    if isinstance(expected, list | tuple):
        pairs = zip(found, expected, strict=True)
        return type(found) is type(expected) and all(same(one, other) for one, other in pairs)
    return bool(found == expected)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("form", NESTED)
def test_the_nested_state_comes_back(ranks: Path, form: str, backend: Any) -> None:
    assert same(tensorkeep.load(ranks / form, framework="torch", backend=backend), nested_of(WHOLE))


@pytest.mark.parametrize("form", NESTED)
def test_a_part_of_the_state(ranks: Path, form: str) -> None:
    whole = nested_of(WHOLE)

    for key in whole:
        assert same(tensorkeep.load(ranks / form, framework="torch", only=key), {key: whole[key]})
    few = tensorkeep.load(
        ranks / form, framework="torch", only=["model.rows", "mixed.1", lambda name: name == "optim.state.a.b.step"]
    )
    expected = {
        "model": {"rows": WHOLE["rows"]},
        "optim": {"state": {"a.b": {"step": WHOLE["scalar"]}}},
        "mixed": [None, "text"],
    }
    assert same(few, expected)
    with pytest.raises(TensorNotFoundError, match="nothing is chosen"):
        tensorkeep.load(ranks / form, only="nobody.*")


@pytest.mark.parametrize("form", FLAT)
def test_flat_states_come_back(ranks: Path, form: str) -> None:
    assert same(tensorkeep.load(ranks / form, framework="torch"), WHOLE)


@pytest.mark.parametrize("form", FORMS)
def test_tensors_are_lazy(ranks: Path, form: str) -> None:
    prefix = "" if form in FLAT else "model."
    with tensorkeep.open(ranks / form) as checkpoint:
        assert isinstance(checkpoint, DistributedCheckpoint)
        for name, whole in WHOLE.items():
            lazy = checkpoint[prefix + name]
            assert lazy.shape == tuple(whole.shape)
            assert lazy.nbytes == whole.nbytes
        tiles = WHOLE["tiles"].numpy()
        assert np.array_equal(checkpoint[prefix + "tiles"][4:6, ::-1, 1], tiles[4:6, ::-1, 1])
        assert np.array_equal(checkpoint.shard(prefix + "both", 0, 2, 3), WHOLE["both"][14:].numpy())
    with pytest.raises(TensorkeepError, match="closed"):
        checkpoint[prefix + "tiles"]


def test_names_of_the_tree(ranks: Path) -> None:
    with tensorkeep.open(ranks / "distcp") as checkpoint:
        assert isinstance(checkpoint, DistributedCheckpoint)
        assert {"model.rows", "mixed.2.deep", "optim.state.a.b.step", "pair.1"} <= set(checkpoint)
        assert checkpoint.tree["optim"]["param_groups"] == [{"lr": 0.1, "betas": (0.9, 0.95)}]
        assert checkpoint.tree["pair"][0] == 1
        assert np.array_equal(checkpoint["pair.1"].load(), [True, False, True])
        assert checkpoint.unknowns == {}
        assert checkpoint.file_of("model.rows") == "__0_0.distcp"
        assert checkpoint.file_of("pair.1").endswith(".distcp")
        assert "DistributedCheckpoint(" in repr(checkpoint)


def test_a_lazy_tensor_pickles(ranks: Path) -> None:
    with tensorkeep.open(ranks / "distcp") as checkpoint:
        again = pickle.loads(pickle.dumps(checkpoint["model.tiles"]))

    assert np.array_equal(again[3:7], WHOLE["tiles"][3:7].numpy())


@pytest.mark.parametrize("form", NESTED)
def test_it_converts(ranks: Path, tmp_path: Path, form: str) -> None:
    conversion = tensorkeep.convert(ranks / form, tmp_path / "converted")

    assert conversion.left_out == {}
    assert conversion.has_tree
    assert conversion.n_summed > 0 or form == "safetensors"
    assert same(tensorkeep.load(tmp_path / "converted", framework="torch"), nested_of(WHOLE))
    assert tensorkeep.verify(tmp_path / "converted").is_whole
    with tensorkeep.open(tmp_path / "converted") as checkpoint:
        assert np.array_equal(checkpoint["model.tiles"].load(), WHOLE["tiles"].numpy())


@pytest.mark.parametrize("form", FLAT)
def test_flat_ones_convert(ranks: Path, tmp_path: Path, form: str) -> None:
    tensorkeep.convert(ranks / form, tmp_path / "converted")

    assert same(tensorkeep.load(tmp_path / "converted", framework="torch"), WHOLE)


def test_the_same_values_in_two_ranks_files_are_not_tied(tmp_path: Path) -> None:
    """Archives within one file all call their first storage the same."""
    state = {"a": (1, torch.zeros(3)), "b": (2, torch.ones(3))}
    dcp.save(state, checkpoint_id=tmp_path / "saved", no_dist=True)

    conversion = tensorkeep.convert(tmp_path / "saved", tmp_path / "converted")

    assert conversion.ties == {}
    assert same(tensorkeep.load(tmp_path / "converted", framework="torch"), state)


@pytest.mark.parametrize("form", FORMS)
def test_it_verifies(ranks: Path, form: str) -> None:
    verification = tensorkeep.verify(ranks / form)

    assert not verification.is_damaged
    files = [*(ranks / form).glob("*.distcp"), *(ranks / form).glob("*.safetensors")]
    assert verification.n_shards == len(files) or form == "file per item"  # some of which hold nothing
    if form in FLAT or form == "safetensors":
        assert verification.n_unprotected == verification.n_tensors
    else:
        assert verification.is_whole
        assert verification.n_checked == verification.n_tensors


def test_a_flipped_byte_is_found(copied: Callable[[str], Path]) -> None:
    folder = copied("distcp")
    with tensorkeep.open(folder) as checkpoint:
        assert isinstance(checkpoint, DistributedCheckpoint)
        file, chunk = list(checkpoint.opened_chunks("model.tiles"))[1]
        assert chunk.storage is not None
        place = chunk.storage.start
    data = bytearray((folder / file).read_bytes())
    data[place] ^= 1
    (folder / file).write_bytes(data)

    [finding] = tensorkeep.verify(folder).findings

    assert (finding.kind, finding.shard, finding.tensor) == ("data", file, "model.tiles")
    with pytest.raises(IntegrityError, match="tiles"):
        tensorkeep.open(folder, verify=True)
    with pytest.raises(IntegrityError, match="tiles"):
        tensorkeep.convert(folder, folder.parent / "converted")
    assert tensorkeep.verify(folder, names=["model.rows"]).is_whole


def test_missing_and_short_files_are_named(copied: Callable[[str], Path]) -> None:
    folder = copied("distcp")
    (folder / "__2_0.distcp").unlink()

    with pytest.raises(SourceMissingError, match=r"__2_0\.distcp: the file is missing"):
        tensorkeep.open(folder)

    os.truncate(folder / "__1_0.distcp", 1000)
    with pytest.raises(IntegrityError, match=r"__1_0\.distcp: the file is truncated, 1,000 bytes"):
        tensorkeep.open(folder)
    kinds = {(finding.kind, finding.shard) for finding in tensorkeep.verify(folder).findings}
    assert {("missing", "__2_0.distcp"), ("truncated", "__1_0.distcp")} <= kinds


def test_the_part_of_a_missing_rank_is_named(copied: Callable[[str], Path]) -> None:
    """The reader of torch itself gives what was in memory for these rows."""
    folder = copied("hf")
    (folder / "shard-00002-model-00001-of-00001.safetensors").unlink()

    with pytest.raises(IntegrityError, match=r"`\w+` is missing: \[.*\] of \[") as raised:
        tensorkeep.open(folder)

    assert "shard-00001-model" in (raised.value.found or "")
    assert "absent" in {finding.kind for finding in tensorkeep.verify(folder).findings}
    assert main(["verify", str(folder)]) == 1


def test_files_of_a_save_by_more_ranks_are_named(tmp_path: Path) -> None:
    for rank, (first, last) in enumerate([(0, 6), (6, 12), (6, 9)], 1):  # the third is older
        offsets = f'{{"w":{{"saved_offsets":[{first}]}}}}'
        tensorkeep.save(
            {"w": np.arange(first, last)},
            tmp_path / f"shard-{rank:05}-model-00001-of-00001.safetensors",
            metadata={"DCP_SHARDING_INFO": offsets},
        )

    with pytest.raises(IntegrityError, match=r"`w` is in two pieces: \[6:12\]"):
        tensorkeep.open(tmp_path)


def test_people_see_it(ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(ranks / "distcp")]) == 0
    shown = capsys.readouterr().out
    assert "files of torch.distributed.checkpoint; nothing in it was run" in shown
    assert "4 files" in shown
    main(["scan", str(ranks / "distcp")])
    assert "torch.distributed.checkpoint.metadata.TensorStorageMetadata" in capsys.readouterr().out


def test_reshard_says_what_to_do(ranks: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="tensorkeep convert"):
        tensorkeep.reshard(ranks / "hf", tmp_path / "resharded")


class Trap:
    """What runs something where a pickle is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/nowhere/trap",)


class Harmless:
    """What is not known to be data."""


def test_values_are_not_run(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(2), "trap": Trap()}, checkpoint_id=tmp_path, no_dist=True)

    with pytest.raises(UnsafeError, match="mkdir"):
        tensorkeep.open(tmp_path)
    with tensorkeep.open(tmp_path, dangerous="record") as checkpoint:
        assert isinstance(checkpoint, DistributedCheckpoint)
        assert [*checkpoint.dangers] == ["posix.mkdir"]
        assert np.array_equal(checkpoint["w"].load(), [1, 1])
    assert main(["scan", str(tmp_path)]) == 1


def test_unknown_objects_stay_unknown(tmp_path: Path) -> None:
    dcp.save({"w": torch.ones(2), "it": Harmless()}, checkpoint_id=tmp_path / "saved", no_dist=True)

    with tensorkeep.open(tmp_path / "saved") as checkpoint:
        assert isinstance(checkpoint, DistributedCheckpoint)
        assert [(name, it.name) for name, it in checkpoint.unknowns.items()] == [("it", "Harmless")]
        assert isinstance(checkpoint.load_tree()["it"], Unknown)
    with pytest.raises(UnsafeError, match="Harmless"):
        tensorkeep.open(tmp_path / "saved", strict=True)
    with pytest.raises(UnsafeError, match=r"`it`: .*Harmless"):
        tensorkeep.convert(tmp_path / "saved", tmp_path / "converted")
    assert tensorkeep.convert(tmp_path / "saved", tmp_path / "converted", drop_unknown=True).left_out == {
        "it": f"{__name__}.Harmless"
    }


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bool, torch.complex64, torch.float16, torch.uint16])
def test_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    whole = torch.arange(6).reshape(2, 3).to(dtype)
    dcp.save({"w": whole, "t": whole.T}, checkpoint_id=tmp_path, no_dist=True)

    loaded = tensorkeep.load(tmp_path, framework="torch")

    assert loaded["w"].dtype == dtype
    assert np.array_equal(loaded["w"].view(torch.uint8).numpy(), whole.view(torch.uint8).numpy())
    assert torch.equal(loaded["t"].contiguous().view(torch.uint8), whole.T.contiguous().view(torch.uint8))


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[Callable[[Metadata], object]], Path]:
    """Save a small state, and let a function change its `.metadata`."""
    state = {"w": torch.arange(8.0), "list": [{"x": torch.ones(2)}], "n": 5}
    dcp.save(state, checkpoint_id=tmp_path, no_dist=True)
    path = tmp_path / ".metadata"

    def change(function: Callable[[Metadata], object]) -> Path:
        metadata = pickle.loads(path.read_bytes())
        function(metadata)
        path.write_bytes(pickle.dumps(metadata))
        return tmp_path

    return change


def info_of(metadata: Metadata, name: str) -> Any:
    return next(info for index, info in metadata.storage_data.items() if index.fqn == name)


def size_of(*sizes: int) -> Any:
    return torch.Size(sizes)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda it: setattr(info_of(it, "w"), "relative_path", "../w.distcp"), PickleError, "the place of `w`"),
        (lambda it: setattr(info_of(it, "w"), "relative_path", "/etc/passwd"), PickleError, "the place of `w`"),
        (lambda it: setattr(info_of(it, "w"), "offset", -1), PickleError, "the place of `w`"),
        (lambda it: setattr(info_of(it, "w"), "length", 2**80), PickleError, "the place of `w`"),
        (lambda it: setattr(info_of(it, "w"), "transform_descriptors", ["zstd"]), UnsupportedError, "extensions"),
        (lambda it: setattr(it, "storage_data", [1]), PickleError, "storage_data"),
        (lambda it: setattr(it, "state_dict_metadata", None), PickleError, "state_dict_metadata"),
        (lambda it: it.storage_data.clear(), PickleError, "nothing says where"),
        (lambda it: setattr(it.state_dict_metadata["w"], "size", (2**40, 2**40)), LimitError, "too large"),
        (lambda it: setattr(it.state_dict_metadata["w"], "size", size_of(9)), IntegrityError, r"missing: \[8:9\]"),
        (lambda it: setattr(it.state_dict_metadata["w"], "size", size_of(7)), IntegrityError, "outside"),
        (lambda it: setattr(it.state_dict_metadata["w"], "size", (-1,)), PickleError, "a size of `w`"),
        (lambda it: setattr(it.state_dict_metadata["w"], "chunks", {}), PickleError, "the chunks of `w`"),
        (
            lambda it: it.state_dict_metadata["w"].chunks.append(ChunkStorageMetadata(size_of(0), size_of(2))),
            IntegrityError,
            "in two pieces",
        ),
        (
            lambda it: it.state_dict_metadata["w"].chunks.extend(it.state_dict_metadata["w"].chunks * 2000),
            LimitError,
            "far more chunks",
        ),
        (lambda it: it.planner_data.update(w=("list",)), FormatError, "another value"),
        (lambda it: it.planner_data.update(w=("list", "key")), FormatError, "a dict and a list"),
        (lambda it: it.planner_data.update(w=("list", 10**9)), LimitError, "too many list items are empty"),
        (lambda it: setattr(it, "planner_data", Trap()), UnsafeError, "mkdir"),
    ],
)
def test_metadata_that_lies_is_refused(changed: Any, function: Any, error: type[Exception], text: str) -> None:
    folder = changed(function)

    with pytest.raises(error, match=text):
        tensorkeep.load(folder)


def test_metadata_that_tells_of_far_more_than_there_is(changed: Any) -> None:
    def multiply(metadata: Metadata) -> None:
        saved, info = metadata.state_dict_metadata["w"], info_of(metadata, "w")
        saved.size = size_of(2**32)
        saved.chunks = [ChunkStorageMetadata(size_of(0), size_of(2**32))]
        metadata.storage_data[MetadataIndex("w", [0])] = info

    with pytest.raises(LimitError, match="many times the size"):
        tensorkeep.open(changed(multiply))


def test_a_part_of_another_shape_is_refused_when_it_is_read(changed: Any) -> None:
    def swap(metadata: Metadata) -> None:
        one, other = info_of(metadata, "w"), info_of(metadata, "list.0.x")
        one.offset, one.length = other.offset, other.length

    with (
        tensorkeep.open(changed(swap)) as checkpoint,
        pytest.raises(IntegrityError, match=r"a part of tensor `w` differs from what .*F32 \[8\], found F32 \[2\]"),
    ):
        checkpoint["w"].load()


def test_metadata_may_be_named_itself(ranks: Path) -> None:
    with tensorkeep.open(ranks / "distcp" / ".metadata") as checkpoint:
        assert isinstance(checkpoint, DistributedCheckpoint)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / ".metadata").write_bytes(b"something else")

    assert [*tensorkeep.load(tmp_path)] == ["w"]


def test_threads_read_side_by_side(ranks: Path) -> None:
    found: list[Any] = []
    with tensorkeep.open(ranks / "distcp") as checkpoint:
        threads = [threading.Thread(target=lambda: found.append(checkpoint["model.tiles"].load())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(found) == 8
    assert all(np.array_equal(one, WHOLE["tiles"].numpy()) for one in found)


def test_a_whole_training_state_of_one_process(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    state = {"model": OrderedDict(model.state_dict()), "optim": optimizer.state_dict()}
    dcp.save(state, checkpoint_id=tmp_path, no_dist=True)

    loaded = tensorkeep.load(tmp_path, framework="torch")

    model.load_state_dict(loaded["model"])
    assert loaded["optim"]["param_groups"] == state["optim"]["param_groups"]
    assert torch.equal(loaded["optim"]["state"]["1"]["exp_avg"], state["optim"]["state"][1]["exp_avg"])
