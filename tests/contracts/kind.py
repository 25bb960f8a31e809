"""The contract of a kind of file. A new one passes it by one class with one method:

class TestGguf(KindContract):
    def save(self, arrays, directory):
        ...
        return path
"""

from __future__ import annotations

import fnmatch
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import TransportError
from tensorkeep.kinds import Opened
from tensorkeep.transport import ByteRange
from tests.support.notebooks import texts_of
from tests.support.remote.fault_server import FaultServer
from tests.support.remote.s3_bucket import Bucket

Arrays = dict[str, np.ndarray[Any, Any]]

ARRAYS: Arrays = {
    "layers.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layers.1.weight": np.arange(24, dtype=np.int64).reshape(4, 6),
    "layers.2.weight": np.arange(30, dtype=np.float16).reshape(5, 6),
    "bias": np.array([1.5, -2.5], np.float64),
}


INDEXES: tuple[Any, ...] = (
    *(-1, ..., slice(None, None, -1), slice(None, 0, -2), slice(5, 1), slice(-2, None)),
    *((..., 0), (None, slice(1, None)), (slice(None, None, -1), None), [-1, 0, -1]),
)


class KindContract:
    """What every kind does; subclasses say how its files come about.

    Where a kind has names of its own, `one` and `two` are some of them, and the pattern `some` selects some.
    """

    arrays: ClassVar[Arrays] = ARRAYS
    one: ClassVar[str] = "bias"
    two: ClassVar[str] = "layers.1.weight"
    some: ClassVar[str] = "layers.*"
    has_checksums: ClassVar[bool] = True
    is_pickled: ClassVar[bool] = False
    holds_programs: ClassVar[bool] = False
    is_local: ClassVar[bool] = False
    is_fetched: ClassVar[bool] = True
    engine: ClassVar[str | None] = None
    verdict: ClassVar[str] = "clean"

    def save(self, arrays: Arrays, directory: Path) -> Path:
        """Write arrays by name, and return the path to open."""
        raise NotImplementedError

    def place_of_a_byte(self, span: ByteRange, file: Path) -> int:
        """Return where in a file a byte of a tensor is, given what a checksum covers."""
        return span.start

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        directory = tmp_path / "saved"
        directory.mkdir()
        return self.save(self.arrays, directory)

    def test_tensors_are_listed_sliced_and_loaded(self, path: Path) -> None:
        with tensorkeep.open(path, engine=self.engine) as opened:
            assert isinstance(opened, Opened)
            assert sorted(opened) == sorted(self.arrays)
            assert len(opened) == len(self.arrays)
            assert self.one in opened
            assert "other" not in opened
            for name, array in self.arrays.items():
                assert opened[name].shape == array.shape
                assert np.array_equal(opened[name][1:], array[1:])
                assert np.array_equal(opened[name].load(), array)
            assert_equal(opened.load(), self.arrays)

    def test_slices_mean_what_they_mean_to_numpy(self, path: Path) -> None:
        with tensorkeep.open(path, engine=self.engine) as opened:
            for name, array in self.arrays.items():
                for index in INDEXES:
                    found = np.asarray(opened[name][index])
                    assert found.dtype == array.dtype
                    assert found.shape == array[index].shape
                    assert np.array_equal(found, array[index]), (name, index)
                with pytest.raises(IndexError):
                    _ = opened[name][len(array)]

    def test_a_part_of_it_is_loaded(self, path: Path) -> None:
        some = {name: array for name, array in self.arrays.items() if fnmatch.fnmatch(name, self.some)}

        assert_equal(tensorkeep.load(path, only=self.some, engine=self.engine), some)
        assert_equal(tensorkeep.load(path, only=[self.one], engine=self.engine), {self.one: self.arrays[self.one]})

    def test_what_runs_elsewhere_is_known(self, path: Path) -> None:
        assert tensorkeep.scan(path).verdict == self.verdict

    def test_all_of_it_is_loaded(self, path: Path) -> None:
        assert_equal(tensorkeep.load(path, engine=self.engine), self.arrays)

    def test_a_framework_is_meant_for_all_of_it(self, path: Path) -> None:
        loaded = tensorkeep.load(path, framework="torch", engine=self.engine)
        assert_equal(loaded, self.arrays)
        assert {type(tensor) for tensor in loaded.values()} == {torch.Tensor}

    def test_loading_says_how_far_it_is(self, path: Path) -> None:
        for load in (tensorkeep.load, load_opened):
            seen: list[tuple[int, int]] = []
            note = lambda done, total, seen=seen: seen.append((done, total))  # noqa: E731
            assert_equal(load(path, engine=self.engine, progress=note), self.arrays)

            assert [done for done, _ in seen] == sorted(done for done, _ in seen)
            if seen or not self.is_pickled:  # arrays within a pickle are there once it is open
                assert seen[-1][0] == seen[-1][1] >= sum(array.nbytes for array in self.arrays.values())

    @pytest.mark.parametrize("backend", ["mmap", "pread"])
    def test_it_reads_with_each_backend(self, path: Path, backend: Any) -> None:
        with tensorkeep.open(path, backend=backend, engine=self.engine) as opened:
            assert_equal(opened.load(), self.arrays)

    def test_its_tensors_are_measured(self, path: Path) -> None:
        with tensorkeep.open(path, engine=self.engine) as opened:
            found = tensorkeep.statistics(opened)

        assert sorted(found) == sorted(self.arrays)
        for name, array in self.arrays.items():
            assert (found[name].min, found[name].max, found[name].mean) == (array.min(), array.max(), array.mean())

    def test_notebooks_show_it(self, path: Path) -> None:
        with tensorkeep.open(path, engine=self.engine) as opened:
            shown = texts_of(opened._repr_html_())
            assert opened._ipython_key_completions_() == list(opened)

        assert {*self.arrays, *(str(list(array.shape)) for array in self.arrays.values())} <= set(shown)

    def test_its_files_hold_its_tensors(self, path: Path) -> None:
        with tensorkeep.open(path, engine=self.engine) as opened:
            assert opened.sources
            assert all(source.nbytes for source in opened.sources.values())
            assert {opened.shard_of(name) for name in opened} <= set(opened.sources)

    def test_nothing_is_read_once_it_is_closed(self, path: Path) -> None:
        opened = tensorkeep.open(path, engine=self.engine)
        kept = opened[self.one].load()
        opened.close()

        with pytest.raises(TransportError, match="closed"):
            opened[self.one].load()
        assert np.array_equal(kept, self.arrays[self.one])

    def test_its_description_lists_every_tensor(self, path: Path) -> None:
        with tensorkeep.open(path, engine=self.engine) as opened:
            description = opened.describe()
            nbytes = {file: source.nbytes for file, source in opened.sources.items()}

        entries = {name: entry for file in description.files for name, entry in file.entries.items()}
        assert sorted(entries) == sorted(self.arrays)
        assert {name: entry.shape for name, entry in entries.items()} == {n: a.shape for n, a in self.arrays.items()}
        assert {file.file: file.file_nbytes for file in description.files} == nbytes
        assert all(file.form for file in description.files)

    def test_a_changed_byte_is_found(self, path: Path) -> None:
        before = tensorkeep.verify(path, engine=self.engine)
        assert before.findings == ()
        assert before.n_tensors == before.n_checked + before.n_unprotected == len(self.arrays)
        if not self.has_checksums:
            assert before.n_unprotected == len(self.arrays)
            return
        assert before.is_whole
        with tensorkeep.open(path, engine=self.engine) as opened:
            check = opened.checks([self.one]).checks[0]
            file = check.source if isinstance(check.source, str) else check.source.name
        flip(Path(file), self.place_of_a_byte(check.span, Path(file)))

        after = tensorkeep.verify(path, engine=self.engine)

        assert [(finding.kind, finding.tensor) for finding in after.findings if finding.kind == "data"] == [
            ("data", self.one)
        ]
        assert after.is_damaged

    def test_a_part_of_it_is_checked_by_name(self, path: Path) -> None:
        found = tensorkeep.verify(path, names=[self.some], engine=self.engine)

        assert found.n_checked + found.n_unprotected == len(fnmatch.filter(self.arrays, self.some))
        with pytest.raises(tensorkeep.errors.TensorNotFoundError):
            tensorkeep.verify(path, names=["other"], engine=self.engine)

    def test_it_is_converted_to_safetensors(self, path: Path, tmp_path: Path) -> None:
        done = tensorkeep.convert(path, tmp_path / "converted", engine=self.engine)

        assert done.n_tensors == len(self.arrays)
        assert_equal(tensorkeep.load(tmp_path / "converted"), self.arrays)
        with tensorkeep.open(path, engine=self.engine) as opened:
            assert tensorkeep.diff(opened, tmp_path / "converted").is_equal

    def test_it_is_resharded_unless_only_a_conversion_will_do(self, path: Path, tmp_path: Path) -> None:
        if self.is_pickled:
            with pytest.raises(tensorkeep.errors.UnsupportedError, match="not a finished checkpoint"):
                tensorkeep.reshard(path, tmp_path / "resharded")
            return
        if self.holds_programs:
            with pytest.raises(tensorkeep.errors.UnsupportedError, match="more than tensors"):
                tensorkeep.reshard(path, tmp_path / "resharded")
            return
        tensorkeep.reshard(path, tmp_path / "resharded")

        assert_equal(tensorkeep.load(tmp_path / "resharded"), self.arrays)

    @pytest.fixture
    def url(self, path: Path) -> Iterator[str]:
        """The checkpoint in a store."""
        store = fsspec.filesystem("memory")
        root = f"/{type(self).__name__}"
        store.put(str(path), f"{root}/{path.name}", recursive=path.is_dir())
        for beside in path.parent.iterdir():
            if beside.is_file():
                store.put(str(beside), f"{root}/{beside.name}")
        yield f"memory:/{root}/{path.name}"
        store.rm(root, recursive=True)

    def test_it_is_read_from_a_store(self, url: str) -> None:
        if self.is_local:
            with pytest.raises(tensorkeep.errors.UnsupportedError, match="local directories only"):
                tensorkeep.open(url, engine=self.engine)
            return
        with tensorkeep.open(url) as opened:
            assert np.array_equal(opened[self.two][2:], self.arrays[self.two][2:])
            assert_equal(opened.load(), self.arrays)

    def test_it_is_read_from_a_bucket(self, path: Path, bucket: Bucket) -> None:
        if self.is_local:
            return
        at = f"{type(self).__name__}/saved"
        for file in files_below(path.parent):
            bucket.client.upload_file(str(file), "models", f"{at}/{file.relative_to(path.parent)}")

        with tensorkeep.open(bucket.at(f"{at}/{path.name}")) as opened:
            assert np.array_equal(opened[self.two][::-2], self.arrays[self.two][::-2])
            assert_equal(opened.load(), self.arrays)

    def test_it_is_read_from_a_web_server(self, path: Path) -> None:
        files = {str(file.relative_to(path.parent)): file.read_bytes() for file in files_below(path.parent)}
        if not path.is_file():  # a server lists nothing
            return
        with FaultServer(files) as server, tensorkeep.open(server.url + path.name) as opened:
            assert np.array_equal(opened[self.two][::-2], self.arrays[self.two][::-2])
            assert_equal(opened.load(), self.arrays)

    def test_one_file_is_read_from_memory(self, path: Path) -> None:
        if len(files_below(path.parent)) > 1:
            return
        content = path.read_bytes()
        for target in (content, memoryview(content), io.BytesIO(content)):
            with tensorkeep.open(target) as opened:
                assert np.array_equal(opened[self.two][::-2], self.arrays[self.two][::-2])
                assert_equal(opened.load(), self.arrays)
        with path.open("rb") as file, tensorkeep.open(file) as opened:
            assert_equal(opened.load(), self.arrays)

    def test_it_is_fetched_from_a_store_again_and_again(self, url: str, tmp_path: Path) -> None:
        if not self.is_fetched:
            with pytest.raises(tensorkeep.errors.UnsupportedError, match="cannot be fetched"):
                tensorkeep.fetch(url, tmp_path / "fetched")
            return
        for _ in range(2):
            entry = tensorkeep.fetch(url, tmp_path / "fetched")

            assert_equal(load_opened(Path(entry), engine=None, progress=None), self.arrays)


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def load_opened(path: Path, *, engine: str | None, progress: Any) -> Arrays:
    with tensorkeep.open(path, engine=engine) as opened:
        return opened.load(progress=progress)


def assert_equal(loaded: dict[str, Any], arrays: Arrays) -> None:
    assert sorted(loaded) == sorted(arrays)
    for name, array in arrays.items():
        assert np.array_equal(np.asarray(loaded[name]), array), name


def flip(path: Path, place: int) -> None:
    copy = path.with_name(path.name + ".copy")
    shutil.copyfile(path, copy)  # the file may be mapped
    content = bytearray(copy.read_bytes())
    content[place] ^= 1
    copy.write_bytes(content)
    copy.replace(path)
