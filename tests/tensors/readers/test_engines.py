"""Whole tensors loaded by other libraries: by safetensors itself, and by stand-ins for loaders that need a GPU."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch

import tensorkeep
from tensorkeep.errors import HeaderError, IntegrityError, MissingDependencyError, TransportError, UnsupportedError
from tensorkeep.tensors.readers import _engines


def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    return {
        "weight": torch.randn(300, 200).bfloat16(),
        "bias": torch.randn(200),
        "number": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "f8": torch.randn(8).to(torch.float8_e4m3fn),
    }


def are_equal(loaded: dict[str, torch.Tensor], saved: dict[str, torch.Tensor]) -> bool:
    return loaded.keys() == saved.keys() and all(
        loaded[name].dtype == tensor.dtype
        and loaded[name].shape == tensor.shape
        and loaded[name].view(-1).view(torch.uint8).equal(tensor.view(-1).view(torch.uint8))
        for name, tensor in saved.items()
    )


class Loader:
    """What fastsafetensors 0.5 and InstantTensor 0.2 offer: tensors that are views of one buffer.

    Attributes:
        opened: The arguments of all calls.
        spoils: Changes what is handed out.
    """

    opened: ClassVar[list[dict[str, Any]]]
    spoils: Any = None

    def __init__(self, filenames: list[str], framework: str = "pt", device: Any = "cpu", **options: Any) -> None:
        self.opened.append({"filenames": filenames, "framework": framework, "device": device, **options})
        self._names = options.get("tensor_filter")
        self._tensors = tensorkeep.torch.load(Path(filenames[0]).read_bytes())
        self._buffer = torch.cat([tensor.view(-1).view(torch.uint8) for tensor in self._tensors.values()])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._buffer.fill_(0xEE)

    def get_tensor(self, name: str) -> torch.Tensor:
        names = list(self._tensors)
        start = sum(self._tensors[other].nbytes for other in names[: names.index(name)])
        tensor = self._tensors[name]
        view = self._buffer[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        return view if self.spoils is None else self.spoils(view)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        own = self.opened[-1].get("copy", True)
        tensors = ((name, self.get_tensor(name)) for name in self._names or ())
        return ((name, tensor.clone() if own else tensor) for name, tensor in tensors)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> type[Loader]:
    class Fresh(Loader):
        opened: ClassVar[list[dict[str, Any]]] = []

    for module, name in (("fastsafetensors", "fastsafe_open"), ("instanttensor", "safe_open")):
        stand_in = types.ModuleType(module)
        setattr(stand_in, name, Fresh)
        monkeypatch.setitem(sys.modules, module, stand_in)
    return Fresh


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensorkeep.torch.save_file(state(), tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


@pytest.mark.parametrize("engine", ["safetensors", "fastsafetensors", "instanttensor"])
def test_tensors_are_right_and_own_their_memory(path: Path, loader: type[Loader], engine: str) -> None:
    loaded = tensorkeep.load(path, framework="torch", engine=engine)

    assert are_equal(loaded, state())
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in loaded.values())
    assert len(loader.opened) == (engine != "safetensors")


@pytest.mark.parametrize("engine", ["safetensors", "fastsafetensors", "instanttensor"])
def test_shards_parts_and_progress(tmp_path: Path, loader: type[Loader], engine: str) -> None:
    tensorkeep.save_checkpoint(state(), tmp_path / "sharded", max_shard_size="50KB")
    heard: list[tuple[int, int]] = []

    loaded = tensorkeep.load(
        tmp_path / "sharded", framework="torch", engine=engine, progress=lambda *so_far: heard.append(so_far)
    )

    assert are_equal(loaded, state())
    assert heard[-1][0] == heard[-1][1]
    with tensorkeep.open(tmp_path / "sharded", framework="torch", engine=engine) as opened:
        n_opened = len(loader.opened)
        assert opened["weight"][5:9].equal(state()["weight"][5:9])
        assert len(loader.opened) == n_opened
        assert opened["weight"].load().equal(state()["weight"])
        assert opened["bias"].__array__().tolist() == state()["bias"].tolist()


def test_safetensors_prefetches_to_cuda(path: Path, loader: type[Loader], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for 0.9, whose `prefetch` takes the names of whole tensors and gives each one once."""

    class Prefetching(Loader):
        opened: ClassVar[list[dict[str, Any]]] = []

        @contextmanager
        def prefetch(self, plan: dict[str, None]) -> Iterator[Iterator[tuple[str, torch.Tensor]]]:
            yield ((name, self.get_tensor(name).clone()) for name in reversed(plan))

    monkeypatch.setattr("safetensors.safe_open", lambda file, **options: Prefetching([file], **options))
    monkeypatch.setattr(_engines.EngineReader, "_device_name", lambda _: "cuda:1")

    assert are_equal(tensorkeep.load(path, framework="torch", engine="safetensors"), state())
    assert Prefetching.opened[0]["device"] == "cuda:1"


def test_libraries_get_the_device_in_full(path: Path, loader: type[Loader]) -> None:
    tensorkeep.load(path, framework="torch", engine="fastsafetensors", device=torch.device("cpu", 0))

    assert loader.opened[0]["device"] == str(torch.empty(0).to(torch.device("cpu", 0)).device)


def test_only_what_is_asked_for_is_loaded(path: Path, loader: type[Loader]) -> None:
    loaded = tensorkeep.load(path, framework="torch", engine="instanttensor", only="bias")

    assert list(loaded) == ["bias"]
    assert loader.opened[0]["tensor_filter"] == ["bias"]
    assert loader.opened[0]["tensor_name_match_mode"] == "exact"


def test_a_file_is_checked_before_it_is_handed_over(path: Path, loader: type[Loader]) -> None:
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(HeaderError):
        tensorkeep.load(path, framework="torch", engine="instanttensor")

    assert not loader.opened


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="there are no paths of open files here")
def test_the_file_that_was_checked_is_loaded(path: Path, loader: type[Loader]) -> None:
    with tensorkeep.open(path, framework="torch", engine="fastsafetensors") as opened:
        path.rename(path.with_name("old"))
        path.write_bytes(b"another file")

        assert are_equal(opened.load(), state())


@pytest.mark.parametrize(
    "spoils", [lambda tensor: tensor.float(), lambda tensor: tensor.view(-1), lambda tensor: tensor.clone()[:0]]
)
def test_other_tensors_than_the_header_describes_are_refused(path: Path, loader: type[Loader], spoils: Any) -> None:
    loader.spoils = staticmethod(spoils)

    with pytest.raises(IntegrityError, match="fastsafetensors did not load tensor `weight`"):
        tensorkeep.load(path, framework="torch", engine="fastsafetensors", only="weight")


def test_errors_of_a_library_are_ours(path: Path, loader: type[Loader]) -> None:
    def fail(_: Any) -> Any:
        raise ValueError("no CUDA device")

    loader.spoils = staticmethod(fail)
    with pytest.raises(TransportError, match="no CUDA device"):
        tensorkeep.load(path, framework="torch", engine="instanttensor")


def test_what_no_engine_can_do_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in ("safetensors", "instanttensor"):
        with pytest.raises(UnsupportedError, match="local files, for torch"):
            tensorkeep.load(path, engine=engine)
        with pytest.raises(UnsupportedError, match="local files, for torch"):
            tensorkeep.load(path.read_bytes(), framework="torch", engine=engine)
    tensorkeep.save(state(), path)
    with pytest.raises(UnsupportedError, match="digests"):
        tensorkeep.load(path, framework="torch", engine="safetensors", verify=True)
    with pytest.raises(UnsupportedError, match="fastsafetensors"):
        tensorkeep.load(path, framework="torch", engine="runai")
    monkeypatch.setitem(sys.modules, "instanttensor", None)
    with pytest.raises(MissingDependencyError, match="instanttensor"):
        tensorkeep.load(path, framework="torch", engine="instanttensor")
