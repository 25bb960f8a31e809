"""Broken and hostile orbax checkpoints: one of our errors, quickly, and nothing is read outside the directory."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tensorkeep
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    LimitError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
)

Copied = Callable[[str], Path]


def opened(path: Path, **options: Any) -> Any:
    return tensorkeep.open(path, **options)


ENGINES = pytest.mark.parametrize("engine", [None, "tensorstore"], ids=["own", "tensorstore"])


def changed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    members = json.loads(path.read_text())
    change(members)
    path.write_text(json.dumps(members))


def entry(keys: list[tuple[str, int]], value_type: str = "jax.Array") -> dict[str, Any]:
    return {
        "key_metadata": [{"key": key, "key_type": kind} for key, kind in keys],
        "value_metadata": {"value_type": value_type, "skip_deserialize": False},
    }


def test_an_unfinished_checkpoint_is_refused_and_stays(copied: Copied) -> None:
    path = copied("files-2")
    (path / "commit_success.txt").unlink()
    changed(path / "_CHECKPOINT_METADATA", lambda step: step.update(commit_timestamp_nsecs=None))

    with pytest.raises(IntegrityError, match=r"unfinished.*Nothing was removed"):
        opened(path)
    assert (path / "_METADATA").exists()


def test_a_copy_without_the_commit_file_is_whole(copied: Copied) -> None:
    path = copied("files-2")
    (path / "commit_success.txt").unlink()

    with opened(path) as checkpoint:
        assert len(checkpoint) == 9


def test_a_temporary_directory_is_refused_by_name(copied: Copied) -> None:
    path = copied("files-2")
    temporary = path.with_name("5.orbax-checkpoint-tmp")
    path.rename(temporary)

    with pytest.raises(IntegrityError, match="unfinished"):
        opened(temporary)


def test_an_unfinished_step_is_not_the_latest(copied: Copied) -> None:
    run = copied("run")
    (run / "10").rename(run / "10.orbax-checkpoint-tmp-1")

    with opened(run, variant="latest") as checkpoint:
        assert checkpoint["state.w"][0] == 2
    with pytest.raises(SourceMissingError, match="no such step"):
        opened(run, variant="7")


@pytest.mark.parametrize("key", ["../ocdbt-2/step", "..", "/etc", "a/../../b", "a\0b", "C:\\x"])
def test_names_lead_nowhere_else(key: str, copied: Copied) -> None:
    path = copied("files-2")
    changed(path / "_METADATA", lambda saved: saved["tree_metadata"].update(x=entry([(key, 2)])))

    with pytest.raises(FormatError):
        opened(path)


def test_a_link_out_of_the_checkpoint_is_refused(copied: Copied, tmp_path: Path) -> None:
    path = copied("files-2")
    (tmp_path / "secret").write_bytes(b"secret")
    chunk = next(file for file in (path / "params.layers.0").iterdir() if file.name == "0")
    chunk.unlink()
    chunk.symlink_to(tmp_path / "secret")

    with pytest.raises(FormatError, match="a link leads out of the checkpoint"):
        opened(path)


def test_links_of_the_cache_of_the_hub_are_followed(copied: Copied, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a" / "blobs", tmp_path / "models--a" / "snapshots" / "main"
    blobs.mkdir(parents=True)
    shutil.copytree(copied("ocdbt-2"), snapshot)
    for number, file in enumerate(file for file in snapshot.rglob("*") if file.is_file()):
        file.rename(blobs / str(number))
        file.symlink_to(os.path.relpath(blobs / str(number), file.parent))

    with opened(snapshot) as checkpoint:
        assert checkpoint["step"].load() == 7


@ENGINES
@pytest.mark.parametrize(
    ("shape", "chunks"), [([10**12], [10**12]), ([2**62], [1]), ([10**7, 10**7], [10**7, 1]), ([3], [10**12])]
)
def test_sizes_are_compared_with_the_files(
    shape: list[int], chunks: list[int], engine: str | None, copied: Copied
) -> None:
    path = copied("files-2")
    changed(path / "params.layers.0" / ".zarray", lambda array: array.update(shape=shape, chunks=chunks))

    with pytest.raises((LimitError, FormatError, IntegrityError)), opened(path, engine=engine) as checkpoint:
        checkpoint["params.layers.0"].load()


@ENGINES
def test_a_missing_array_is_an_error(engine: str | None, copied: Copied) -> None:
    path = copied("files-2")
    shutil.rmtree(path / "params.layers.0")

    with pytest.raises(FormatError, match="the array is missing"):
        opened(path, engine=engine)


def test_a_missing_chunk_is_an_error_unless_zeros_may_be_left_out(copied: Copied) -> None:
    path = copied("files-2")
    (path / "params.layers.0" / "0").unlink()

    with opened(path) as checkpoint, pytest.raises(IntegrityError, match=r"not whole.*copy all of its files"):
        checkpoint["params.layers.0"].load()
    changed(path / "_METADATA", lambda saved: saved.pop("store_array_data_equal_to_fill_value"))
    with opened(path) as checkpoint:
        assert not checkpoint["params.layers.0"].load().any()


@ENGINES
def test_garbage_in_a_chunk_is_an_error(engine: str | None, copied: Copied) -> None:
    path = copied("files-2")
    for file in (path / "params.layers.1").iterdir():
        if file.name != ".zarray":
            file.write_bytes(b"garbage")

    with opened(path, engine=engine) as checkpoint, pytest.raises(FormatError, match=r"cannot read|damaged"):
        checkpoint["params.layers.1"].load()


@pytest.mark.parametrize("name", ["_METADATA", "_CHECKPOINT_METADATA", "_strings.json", "manifest.ocdbt"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"tree_metadata": {"x": 1}}'])
def test_broken_files_are_errors_of_ours(name: str, content: bytes, copied: Copied) -> None:
    path = copied("ocdbt-2")
    (path / name).write_bytes(content)

    with suppress(TensorkeepError), opened(path) as checkpoint:
        checkpoint.load()


def test_truncation_and_flips_of_the_metadata_are_errors_or_values(copied: Copied) -> None:
    path = copied("files-2") / "_METADATA"
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]):
            path.write_bytes(content)
            try:
                opened(path.parent).close()
            except TensorkeepError:
                continue


def test_truncation_and_flips_of_databases_are_found_by_their_checksums(copied: Copied) -> None:
    path = copied("ocdbt-3")
    (tree,) = (path / "d").iterdir()
    for file in (path / "manifest.ocdbt", tree):
        whole = file.read_bytes()
        for place in range(0, len(whole), 9):
            for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]):
                file.write_bytes(content)
                with pytest.raises((FormatError, IntegrityError)):
                    opened(path)
                assert tensorkeep.verify(path).is_damaged
        file.write_bytes(whole)


def test_other_compression_names_the_library_that_reads_it(copied: Copied) -> None:
    path = copied("files-2")
    changed(path / "rate" / ".zarray", lambda array: array.update(compressor={"id": "blosc"}))

    with pytest.raises(
        UnsupportedError, match=r"array `rate` has chunks compressed with 'blosc'.*engine=\"tensorstore"
    ):
        opened(path)


def test_keys_of_chunks_lead_nowhere_else(copied: Copied) -> None:
    path = copied("files-2")
    for separator in ("/../", "/../../../", "", "\0", 7):
        changed(
            path / "params.dense/~/w" / ".zarray", lambda array, by=separator: array.update(dimension_separator=by)
        )
        with pytest.raises(FormatError):
            opened(path)


@pytest.mark.parametrize("is_complete", [True, False])
def test_very_many_chunks_that_are_not_there_take_no_time(is_complete: bool, copied: Copied) -> None:
    path = copied("files-3")
    changed(path / "_METADATA", lambda saved: saved.update(store_array_data_equal_to_fill_value=is_complete))

    def share(array: dict[str, Any]) -> None:
        array.update(shape=[2**25])
        array["chunk_grid"]["configuration"]["chunk_shape"] = [2**25]
        array["codecs"][0]["configuration"]["chunk_shape"] = [1]

    changed(path / "step" / "zarr.json", share)
    begin = time.process_time()
    with opened(path) as checkpoint:
        if is_complete:
            with pytest.raises(IntegrityError, match="not whole"):
                checkpoint["step"].load()
        else:
            assert not checkpoint["step"][5:].any()
    assert time.process_time() - begin < 5


def test_names_that_no_file_can_have_are_errors_of_ours(copied: Copied) -> None:
    path = copied("files-2")
    long = "x" * 300
    changed(path / "_METADATA", lambda saved: saved["tree_metadata"].update({long: entry([(long, 2)])}))

    with pytest.raises(TensorkeepError):
        opened(path)


def test_a_chunk_that_is_a_link_to_itself_is_an_error_of_ours(copied: Copied) -> None:
    path = copied("files-2")
    (path / "params.layers.0" / "0").unlink()
    (path / "params.layers.0" / "0").symlink_to("0")

    with pytest.raises(TensorkeepError):
        opened(path)["params.layers.0"].load()
