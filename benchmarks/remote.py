"""Checkpoints on a web server: a whole one into memory, and a quarter of one with requests delayed by 50 ms."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorkeep
from benchmarks import inputs, llama
from benchmarks.case import AtLeast, Case, Contender, Place
from benchmarks.web import start_nginx, start_slow_line

__all__ = ["CASES"]

_DELAY_S = 0.05
_BY_COLUMNS = ("o_proj.weight", "down_proj.weight")
"""Weights whose columns are shared out in tensor parallelism; of all others it is the rows."""


class _Site:
    """Files, where they are served, and where copies go."""

    def __init__(self, files: list[Path], copies: Path, *, delay_s: float = 0) -> None:
        for path in files:
            inputs.read_into_cache(path)
        port = start_nginx(files[0].parent)
        self.root = f"http://127.0.0.1:{start_slow_line(port, delay_s) if delay_s else port}"
        self.names = [path.name for path in files]
        self.copies = copies
        self.copies.mkdir(parents=True, exist_ok=True)

    def urls(self) -> list[tuple[str, Path]]:
        """Return each file's URL, and where a copy of it goes."""
        return [(f"{self.root}/{name}", self.copies / name) for name in self.names]


def _one_file(place: Place) -> _Site:
    path = inputs.tensor_file(place.folder, "F32", (1024, place.size(3142, 32)), place.size(80, 8))
    return _Site([path], place.tmpfs / "fetched")


def _model(place: Place) -> _Site:
    folder = llama.plain_files(place)
    files = [folder / "model.safetensors.index.json", *sorted(folder.glob("*.safetensors"))]
    return _Site(files, place.tmpfs / "fetched", delay_s=_DELAY_S)


def _load(site: _Site) -> Any:
    return tensorkeep.load(site.urls()[0][0])


def _curl_to_a_file(site: _Site) -> None:
    (url, copy), *_ = site.urls()
    subprocess.run(["curl", "--silent", "--fail", "--output", str(copy), url], check=True)


def _read_by_fsspec(site: _Site) -> Any:
    import fsspec
    import safetensors.numpy

    (url, copy), *_ = site.urls()
    fsspec.filesystem("http").get_file(url, str(copy))
    return safetensors.numpy.load_file(copy)


def _part_of(name: str, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of what the second of four ranks needs from a tensor."""
    axis = int(name.endswith(_BY_COLUMNS))
    extent = shape[axis] // 4
    return (*[slice(None)] * axis, slice(extent, 2 * extent))


def _quarter_read(site: _Site) -> Any:
    with tensorkeep.open(f"{site.root}/{site.names[0]}", framework="torch") as checkpoint:
        return checkpoint.load_parts({name: _part_of(name, lazy.shape) for name, lazy in checkpoint.items()})


def _quarter_of_copies(site: _Site) -> Any:
    import safetensors

    found: dict[str, Any] = {}
    for _, copy in site.urls()[1:]:
        with safetensors.safe_open(copy, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                part = file.get_slice(name)
                found[name] = part[_part_of(name, part.get_shape())]
    return found


def _quarter_by_hub(site: _Site) -> Any:
    from huggingface_hub import constants
    from huggingface_hub.file_download import http_get

    constants.HF_HUB_OFFLINE = False  # only for requests to this machine
    for url, copy in site.urls():
        with open(copy, "wb") as file:
            http_get(url, file)
    return _quarter_of_copies(site)


def _quarter_by_fsspec(site: _Site) -> Any:
    import fsspec

    files = fsspec.filesystem("http")
    urls = site.urls()
    files.get([url for url, _ in urls], [str(copy) for _, copy in urls])
    return _quarter_of_copies(site)


def _remove_copies(site: _Site) -> None:
    for _, copy in site.urls():
        copy.unlink(missing_ok=True)


CASES = (
    Case(
        name="remote/load",
        title="1.0 GB from nginx on the loopback, into memory",
        prepare=_one_file,
        ours=Contender("tensorkeep", _load),
        peers=(Contender("fsspec and safetensors", _read_by_fsspec),),
        limits=(Contender("curl to a file in memory", _curl_to_a_file),),
        target=AtLeast(1.0),
        after=_remove_copies,
        rounds=9,
        remark="The peer downloads the file to an in-memory file system and maps it.",
    ),
    Case(
        name="remote/quarter",
        title="a quarter of a model of 2.5 GB, each request delayed by 50 ms",
        prepare=_model,
        ours=Contender("tensorkeep", _quarter_read),
        peers=(
            Contender("huggingface_hub and safetensors", _quarter_by_hub),
            Contender("fsspec and safetensors", _quarter_by_fsspec),
        ),
        target=AtLeast(3.0),
        after=_remove_copies,
        rounds=5,
        remark="This is what one of four ranks needs: rows of most weights, columns of two in each layer. The peers "
        "download everything to an in-memory file system and slice it there.",
    ),
)
