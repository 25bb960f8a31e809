"""Places of a store, and how to look at them without the library."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fsspec

from tests.support.remote.s3_bucket import Bucket


class KeptAt(NamedTuple):
    """A new, empty place of a store.

    Attributes:
        root: What the store is given.
        names: Says which files there are, as relative paths.
        get: Reads one.
        put: Writes or replaces one.
    """

    root: Any
    names: Callable[[], set[str]]
    get: Callable[[str], bytes]
    put: Callable[[str, bytes], object]

    def of_step(self, step: int) -> set[str]:
        """Return the names of the files of a step."""
        return {name for name in self.names() if name.startswith(f"step-{step:08d}/")}

    def shards(self, step: int) -> dict[str, int]:
        """Return the files of tensors of a step, with their sizes, the smallest first."""
        sizes = {name: len(self.get(name)) for name in self.of_step(step) if name.endswith(".safetensors")}
        return dict(sorted(sizes.items(), key=lambda each: each[1]))


def in_directory(path: Path, bucket: Bucket) -> KeptAt:
    root = path / "run"

    def put(name: str, data: bytes) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    def names() -> set[str]:
        return {each.relative_to(root).as_posix() for each in root.rglob("*") if each.is_file()}

    return KeptAt(root, names, lambda name: (root / name).read_bytes(), put)


def in_bucket(path: Path, bucket: Bucket, **options: Any) -> KeptAt:
    prefix, client = path.name, bucket.client
    return KeptAt(
        bucket.at(prefix, **options),
        lambda: bucket.names(prefix),
        lambda name: client.get_object(Bucket="models", Key=f"{prefix}/{name}")["Body"].read(),
        lambda name, data: client.put_object(Bucket="models", Key=f"{prefix}/{name}", Body=data),
    )


def in_memory(path: Path, bucket: Bucket) -> KeptAt:
    root, files = f"memory://{path.name}/run", fsspec.filesystem("memory")
    inner = f"/{path.name}/run/"

    def names() -> set[str]:
        return {os.path.relpath(name, inner) for name in files.find(inner)}

    return KeptAt(
        root, names, lambda name: files.cat_file(inner + name), lambda name, data: files.pipe(inner + name, data)
    )


PLACES = [in_directory, in_bucket, in_memory]
