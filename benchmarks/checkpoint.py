"""Sharded checkpoints: save, verify, reshard, open."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import torch
from huggingface_hub import save_torch_state_dict

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place
from benchmarks.llama import N_SHARDS, Llama, plain_files, shards_of
from tensorkeep.torch import save_file
from tensorkeep.transport.system import finish_freeing

__all__ = ["CASES"]


class _Job:
    """A model in memory, and the directory to save it to."""

    def __init__(self, place: Place, name: str = "saved") -> None:
        self.llama = Llama(place)
        self.target = place.folder / name

    @cached_property
    def shards(self) -> list[dict[str, torch.Tensor]]:
        """The tensors of each file."""
        tensors = self.llama.tensors
        index = json.loads((self.llama.files / "model.safetensors.index.json").read_text())["weight_map"]
        files = sorted(set(index.values()))
        return [{name: tensors[name] for name in tensors if index[name] == file} for file in files]

    @cached_property
    def buffers(self) -> list[list[limits.Bytes]]:
        """The bytes of the tensors of each file."""
        return [[tensor.view(torch.uint8).reshape(-1).numpy() for tensor in each.values()] for each in self.shards]

    def paths(self) -> list[Path]:
        """Make the directory, and return where shards go."""
        self.target.mkdir(exist_ok=True)
        return [self.target / f"model-{at:05}-of-{N_SHARDS:05}.safetensors" for at in range(1, N_SHARDS + 1)]


def _save(job: _Job, **options: Any) -> None:
    options = {"durable": False, "max_shard_size": job.llama.max_shard_nbytes, **options}
    tensorkeep.save_checkpoint(job.llama.tensors, job.target, **options)


def _save_by_hub(job: _Job) -> None:
    job.target.mkdir(exist_ok=True)
    save_torch_state_dict(job.llama.tensors, job.target, max_shard_size=job.llama.max_shard_nbytes)


def _save_by_hub_and_sum(job: _Job) -> None:
    _save_by_hub(job)
    _sha256sum(shards_of(job.target), n_processes=os.cpu_count() or 1)


def _save_by_hub_and_sync(job: _Job) -> None:
    _save_by_hub(job)
    _sync(job)


def _save_by_transformers(job: _Job) -> None:
    job.llama.model.save_pretrained(job.target, max_shard_size=job.llama.max_shard_nbytes)


def _save_without_digests(job: _Job) -> None:
    def save(shard: dict[str, torch.Tensor], path: Path) -> None:
        save_file(shard, path)

    _two_at_a_time(save, job.shards, job.paths())


def _write(job: _Job, *, durable: bool = False) -> None:
    def write(buffers: list[limits.Bytes], path: Path) -> None:
        limits.write_buffers(buffers, path, durable=durable)

    _two_at_a_time(write, job.buffers, job.paths())


def _two_at_a_time(work: Callable[[Any, Path], None], items: list[Any], paths: list[Path]) -> None:
    with ThreadPoolExecutor(2) as threads:
        for _ in threads.map(work, items, paths):
            pass


def _digests_alone(job: _Job) -> None:
    for shard in job.buffers:
        limits.blake3_by_all_cores(shard)


def _sync(job: _Job) -> None:
    """Flush existing files to disk, as if hours had passed since the last save."""
    if not job.target.exists():
        return
    for target in (*job.target.iterdir(), job.target):
        fd = os.open(target, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def _remove(subject: _Job | _Stored) -> None:
    if subject.target.exists():
        shutil.rmtree(subject.target)


class _Stored:
    """A checkpoint with digests in five files, and one without."""

    def __init__(self, place: Place, plain: Path) -> None:
        self.plain = plain
        self.sealed = plain.with_name(f"{plain.name}-sealed")
        if not self.sealed.exists():
            tensorkeep.reshard(plain, self.sealed, layout=plain / "model.safetensors.index.json")
        self.target = place.folder / "resharded"
        for path in (*shards_of(self.plain), *shards_of(self.sealed)):
            inputs.read_into_cache(path)

    @cached_property
    def mapped(self) -> list[limits.Bytes]:
        """The shards' bytes, with all pages in place."""
        return [limits.mapped_pages(path) for path in shards_of(self.sealed)]

    @cached_property
    def headers(self) -> list[bytes]:
        """The JSON header of each shard."""
        return [inputs.header_of(path) for path in shards_of(self.sealed)]


def _prepare_stored(place: Place) -> _Stored:
    return _Stored(place, plain_files(place))


def _prepare_mapped(place: Place) -> _Stored:
    stored = _prepare_stored(place)
    stored.mapped  # noqa: B018 - here, so that it does not count as a contender's memory
    return stored


def _prepare_many(place: Place) -> _Stored:
    """Declare five shards of 4,000 tensors each, of 2 kB."""
    n_tensors = place.size(20_000, 200)
    shapes = dict.fromkeys(inputs.tensor_names(n_tensors), (16, 32))
    inputs.sharded_files(place.folder / "many", "F32", shapes, n_tensors // N_SHARDS * 2048)
    return _Stored(place, place.folder / "many")


def _verify(stored: _Stored) -> None:
    if not tensorkeep.verify(stored.sealed).is_whole:
        raise RuntimeError(f"{stored.sealed} is damaged")


def _sha256sum(paths: list[Path], n_processes: int = 1) -> None:
    """Run `sha256sum`, once for all files or in parallel for each."""
    share = 1 if n_processes > 1 else len(paths)
    command = ["xargs", "-0", f"-P{n_processes}", f"-n{share}", "sha256sum"]
    names = b"\0".join(os.fsencode(path) for path in paths)
    subprocess.run(command, input=names, stdout=subprocess.DEVNULL, check=True)


def _reshard(stored: _Stored, source: Path) -> None:
    nbytes = sum(path.stat().st_size for path in shards_of(source))
    tensorkeep.reshard(source, stored.target, max_shard_size=int(0.55 * nbytes), durable=False)


def _cp(stored: _Stored) -> None:
    stored.target.mkdir()
    subprocess.run(["cp", *shards_of(stored.sealed), stored.target], check=True)


def _open(directory: Path) -> Any:
    checkpoint = tensorkeep.open(directory, framework="torch")
    return checkpoint, list(checkpoint)


def _open_each(directory: Path, *, slices: bool = False) -> Any:
    """Open as the Hugging Face libraries do: the index by `json`, then every shard for its names."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    found = []
    for name in sorted(set(index["weight_map"].values())):
        file = safetensors.safe_open(directory / name, framework="pt")
        found.append((file, {key: file.get_slice(key) if slices else None for key in file.keys()}))  # noqa: SIM118
    return found


_OURS = Contender("tensorkeep", _save)
_HUB = Contender("huggingface_hub", _save_by_hub)
_PEERS = (
    _HUB,
    Contender("transformers", _save_by_transformers),
    Contender("tensorkeep.save of each shard, digests=False, two at a time", _save_without_digests),
)
_LIMITS = (
    Contender("fallocate and write by 2 threads", _write),
    Contender("BLAKE3 of the tensors, all cores", _digests_alone),
)

CASES = (
    Case(
        name="checkpoint/save-new",
        title="`save_checkpoint`, 2.5 GB in 201 BF16 tensors and 5 shards, a new directory",
        prepare=_Job,
        after=_remove,
        ours=_OURS,
        peers=_PEERS,
        limits=_LIMITS,
        target=AtLeast(1.0),
        rounds=7,
        remark="tensorkeep computes a BLAKE3 digest of every tensor as it is written; the peers compute none. The "
        "cost of that, of the index and of the step that makes all files appear is the difference from "
        "`tensorkeep.save(…, digests=False)` of each shard. Nothing waits for the disk.",
    ),
    Case(
        name="checkpoint/save-over",
        title="the same over an older checkpoint",
        prepare=lambda place: _Job(place, "saved-over"),
        before=_sync,
        after=lambda _: finish_freeing(),
        ours=_OURS,
        peers=_PEERS,
        limits=_LIMITS[:1],
        target=AtLeast(1.0),
        rounds=7,
        remark="The older files are on disk when the clock starts. Only tensorkeep keeps them until the new ones "
        "are complete: killed in between, the others leave a mixture or nothing. It leaves freeing them to a thread.",
    ),
    Case(
        name="checkpoint/save-sha256",
        title="the same into a new directory, with the SHA-256 of each shard",
        prepare=_Job,
        after=_remove,
        ours=Contender("tensorkeep", lambda job: _save(job, sha256=True)),
        peers=(Contender("huggingface_hub, then sha256sum on all cores", _save_by_hub_and_sum),),
        target=AtLeast(1.0),
        rounds=5,
    ),
    Case(
        name="checkpoint/save-durable",
        title="the same into a new directory, with fsync",
        prepare=_Job,
        after=_remove,
        ours=Contender("tensorkeep", lambda job: _save(job, durable=True)),
        peers=(Contender("huggingface_hub, then fsync", _save_by_hub_and_sync),),
        limits=(Contender("fallocate, write, fsync by 2 threads", lambda job: _write(job, durable=True)),),
        rounds=5,
        remark="The default of `save_checkpoint`, and the price of surviving a power cut.",
    ),
    Case(
        name="checkpoint/verify",
        title="`verify`, 2.5 GB in 5 shards, warm",
        prepare=_prepare_mapped,
        ours=Contender("tensorkeep", _verify),
        peers=(
            Contender("BLAKE3 over memory, all cores", lambda stored: limits.blake3_by_all_cores(stored.mapped)),
            Contender("sha256sum", lambda stored: _sha256sum(shards_of(stored.sealed))),
            Contender(
                "sha256sum on all cores",
                lambda stored: _sha256sum(shards_of(stored.sealed), n_processes=os.cpu_count() or 1),
            ),
        ),
        target=AtLeast(0.7),
        rounds=9,
        remark="The first peer computes only the digest, over bytes already mapped: it opens, maps and compares "
        "nothing, so 1x is close to the maximum.",
    ),
    Case(
        name="checkpoint/reshard",
        title="`reshard`, 2.5 GB from 5 shards to 2, warm",
        prepare=_prepare_stored,
        after=_remove,
        ours=Contender("tensorkeep", lambda stored: _reshard(stored, stored.sealed)),
        peers=(
            Contender("cp of the five files", _cp),
            Contender("tensorkeep, from files without digests", lambda stored: _reshard(stored, stored.plain)),
        ),
        target=AtLeast(0.8),
        max_extra_nbytes=100_000_000,
        rounds=7,
        remark="The kernel copies bytes from file to file, and digests are kept. Nothing waits for the disk.",
    ),
    Case(
        name="checkpoint/open",
        title="`open` a checkpoint of 5 shards of 4,000 tensors each",
        prepare=_prepare_many,
        ours=Contender("tensorkeep", lambda stored: _open(stored.sealed)),
        peers=(
            Contender("safe_open of each shard", lambda stored: _open_each(stored.sealed)),
            Contender("the same and get_slice, as transformers", lambda s: _open_each(s.sealed, slices=True)),
            Contender("tensorkeep, files without digests", lambda stored: _open(stored.plain)),
            Contender("safe_open of each, without digests", lambda stored: _open_each(stored.plain)),
        ),
        limits=limits.decoded_headers(lambda stored: stored.headers),
        target=AtLeast(1.0),
        remark="Both read the index and every header. Only tensorkeep also checks headers against their digests and "
        "the index.",
    ),
)
