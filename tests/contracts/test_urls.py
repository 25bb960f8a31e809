"""A path with a scheme is a URL for every public function: used or refused, and never a directory named `s3:`."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch
import numpy as np
import pytest
import pytorch_lightning  # noqa: F401 - with lightning: the integration adapts to those that are imported
import torch
import torch.distributed.checkpoint as dcp
from skorch import NeuralNetClassifier

import tensorkeep
import tensorkeep.numpy
import tensorkeep.torch
from tensorkeep.checkpoint import save_folder, verify_folder
from tensorkeep.errors import TensorkeepError, UnsupportedError
from tensorkeep.integrations import accelerate, distributed, lightning, skorch, transformers
from tensorkeep.server import Server
from tensorkeep.signing import PrivateKey, PublicKey
from tensorkeep.viewing import Viewer
from tests.support.integrations.skorch.nets import Layers, X, Y
from tests.support.integrations.transformers.tiny_trainers import gpt2, trainer
from tests.support.public_functions import with_paths
from tests.support.remote.s3_bucket import Bucket

ARRAYS = {"w": np.ones(4, np.float32)}
TENSORS = {"w": torch.ones(4)}
STATE = {"w": torch.ones(4), "step": 1}


def orbax() -> Any:
    return importlib.import_module("tensorkeep.integrations.orbax")


def saved_by(checkpointer: Any, path: Any, state: Any) -> None:
    with checkpointer:
        checkpointer.save(path, state)


def net(*callbacks: Any) -> Any:
    return NeuralNetClassifier(Layers, callbacks=list(callbacks), max_epochs=1, train_split=None, verbose=0)


def run_of(**options: Any) -> Any:
    made = accelerate.Accelerator(**options)
    made.prepare(torch.nn.Linear(2, 2))
    return made


def trained(path: Any) -> None:
    trainer(path, max_steps=1, save_steps=1).train()


def folder(path: Any) -> None:
    with save_folder(path) as staging:
        Path(staging, "a").write_text("a")


def served(path: Any) -> None:
    with Server(path, port=0):
        pass


def plugin() -> Any:
    return lightning.TensorkeepCheckpointIO()


def in_background() -> Any:
    return lightning.AsyncTensorkeepCheckpointIO()


def numbered(path: Any) -> None:
    from accelerate.utils import ProjectConfiguration

    settings = ProjectConfiguration(project_dir=path, automatic_checkpoint_naming=True)
    run_of(project_config=settings).save_state()


CALLS: dict[str, Callable[[Any], object]] = {
    "tensorkeep.Encryption": tensorkeep.Encryption,
    "tensorkeep.save_checkpoint": lambda url: tensorkeep.save_checkpoint(STATE, url),
    "tensorkeep.writing": lambda url: tensorkeep.writing(url, ARRAYS),
    "tensorkeep.save": lambda url: tensorkeep.save(STATE, f"{url}.safetensors"),
    "tensorkeep.save_async": lambda url: tensorkeep.save_async(STATE, url).result(),
    "tensorkeep.serialize_file": lambda url: tensorkeep.serialize_file({}, f"{url}.safetensors"),
    "tensorkeep.torch.save_file": lambda url: tensorkeep.torch.save_file(TENSORS, f"{url}.safetensors"),
    "tensorkeep.numpy.save_file": lambda url: tensorkeep.numpy.save_file(ARRAYS, f"{url}.safetensors"),
    "tensorkeep.torch.save_model": lambda url: tensorkeep.torch.save_model(Layers(), f"{url}.safetensors"),
    "tensorkeep.jax.save": lambda url: tensorkeep.jax.save(ARRAYS, url),
    "tensorkeep.jax.save_async": lambda url: tensorkeep.jax.save_async(ARRAYS, url).result(),
    "tensorkeep.jax.load": lambda url: tensorkeep.jax.load(url),  # imported when the test runs: jax starts threads
    "tensorkeep.reshard": lambda url: tensorkeep.reshard(url, f"{url}-resharded"),
    "tensorkeep.reshard_for_ranks": lambda url: tensorkeep.reshard_for_ranks(
        url, f"{url}-ranks", 2, plan={"*": "colwise"}
    ),
    "tensorkeep.join": lambda url: tensorkeep.join([url], f"{url}-joined"),
    "tensorkeep.convert": lambda url: tensorkeep.convert(url, f"{url}-converted"),
    "tensorkeep.export": lambda url: tensorkeep.export(f"{url}.safetensors", f"{url}.npz"),
    "tensorkeep.CheckpointStore": lambda url: tensorkeep.CheckpointStore(url).save(1, STATE),
    "tensorkeep.edit": lambda url: tensorkeep.edit(url, set_metadata={"a": "b"}),
    "tensorkeep.add_block_digests": tensorkeep.add_block_digests,
    "tensorkeep.add_sha256": tensorkeep.add_sha256,
    "tensorkeep.fetch": lambda url: tensorkeep.fetch(url, f"{url}-fetched"),
    "tensorkeep.push": lambda url: tensorkeep.push(url, f"{url}-pushed"),
    "tensorkeep.follow": lambda url: tensorkeep.follow(url).poll(),
    "tensorkeep.patches.make": lambda url: tensorkeep.patches.make(url, url, f"{url}.patch"),
    "tensorkeep.patches.chain": lambda url: tensorkeep.patches.chain([f"{url}.patch"], f"{url}.chained"),
    "tensorkeep.patches.apply": lambda url: tensorkeep.patches.apply(url, f"{url}.patch"),
    "tensorkeep.patches.undo": lambda url: tensorkeep.patches.undo(url, f"{url}.patch"),
    "tensorkeep.patches.Publisher": lambda url: tensorkeep.patches.Publisher(f"{url}-feed").publish(1, url),
    "tensorkeep.patches.Update.apply_to": lambda url: tensorkeep.patches.Update(1, url, True).apply_to(f"{url}-next"),
    "tensorkeep.sign": lambda url: tensorkeep.sign(url, PrivateKey.generate()),
    "tensorkeep.signing.sign_keyless": tensorkeep.signing.sign_keyless,
    "tensorkeep.signing.read_certificates": tensorkeep.signing.read_certificates,
    "tensorkeep.trust.Authority.read": tensorkeep.trust.Authority.read,
    "tensorkeep.signing.is_encrypted": tensorkeep.signing.is_encrypted,
    "tensorkeep.signing.PrivateKey.read": PrivateKey.read,
    "tensorkeep.signing.PrivateKey.write": lambda url: PrivateKey.generate().write(url),
    "tensorkeep.signing.PublicKey.read": PublicKey.read,
    "tensorkeep.Policy.of": tensorkeep.Policy.of,
    "tensorkeep.remote": lambda url: tensorkeep.remote("memory://m", cache_dir=url),
    "tensorkeep.open": lambda url: tensorkeep.open(url).close(),
    "tensorkeep.load": tensorkeep.load,
    "tensorkeep.diff": lambda url: tensorkeep.diff(url, url),
    "tensorkeep.scan": tensorkeep.scan,
    "tensorkeep.show": tensorkeep.show,
    "tensorkeep.Picture.save": lambda url: tensorkeep.Picture("", "").save(url),
    "tensorkeep.statistics": tensorkeep.statistics,
    "tensorkeep.verify": tensorkeep.verify,
    "tensorkeep.check": tensorkeep.check,
    "tensorkeep.safe_open": lambda url: tensorkeep.safe_open(f"{url}.safetensors", "np"),
    "tensorkeep.torch.load_file": lambda url: tensorkeep.torch.load_file(f"{url}.safetensors"),
    "tensorkeep.numpy.load_file": lambda url: tensorkeep.numpy.load_file(f"{url}.safetensors"),
    "tensorkeep.torch.load_model": lambda url: tensorkeep.torch.load_model(Layers(), f"{url}.safetensors"),
    "tensorkeep.torch.load_into": lambda url: tensorkeep.torch.load_into(Layers(), url),
    "tensorkeep.torch.coverage": lambda url: tensorkeep.torch.coverage(Layers(), url),
    "tensorkeep.torch.assert_loaded": lambda url: tensorkeep.torch.assert_loaded(Layers(), url),
    "tensorkeep.torch.load_sharded": lambda url: tensorkeep.torch.load_sharded(Layers(), url),
    "tensorkeep.torch.restore": lambda url: tensorkeep.torch.restore(url, rng=False),
    "tensorkeep.checkpoint.save_folder": folder,
    "tensorkeep.checkpoint.verify_folder": verify_folder,
    "tensorkeep.server.Server": served,
    "tensorkeep.viewing.Viewer": lambda url: Viewer(url).close(),
    "skorch.Checkpoint": lambda url: net(skorch.Checkpoint(dirname=url, monitor=None)).fit(X, Y),
    "skorch.TrainEndCheckpoint": lambda url: net(skorch.TrainEndCheckpoint(dirname=url)).fit(X, Y),
    "skorch.save_params": lambda url: skorch.save_params(net().initialize(), f_params=f"{url}.safetensors"),
    "skorch.load_params": lambda url: skorch.load_params(net().initialize(), f_params=f"{url}.safetensors"),
    "lightning.TensorkeepCheckpointIO.save_checkpoint": lambda url: plugin().save_checkpoint(STATE, f"{url}.ckpt"),
    "lightning.TensorkeepCheckpointIO.load_checkpoint": lambda url: plugin().load_checkpoint(url),
    "lightning.TensorkeepCheckpointIO.read": lambda url: plugin().read(url),
    "lightning.TensorkeepCheckpointIO.remove_checkpoint": lambda url: plugin().remove_checkpoint(url),
    "lightning.AsyncTensorkeepCheckpointIO.save_checkpoint": lambda url: in_background().save_checkpoint(
        STATE, f"{url}.ckpt"
    ),
    "lightning.AsyncTensorkeepCheckpointIO.read": lambda url: in_background().read(url),
    "lightning.AsyncTensorkeepCheckpointIO.remove_checkpoint": lambda url: in_background().remove_checkpoint(url),
    "lightning.load_from_checkpoint": lambda url: lightning.load_from_checkpoint(dict, url),
    "transformers.save_pretrained": lambda url: transformers.save_pretrained(gpt2(), f"{url}-gpt"),
    "transformers.from_pretrained": lambda url: transformers.from_pretrained(type(gpt2()), url, cache_dir=f"{url}-c"),
    "transformers.get_last_checkpoint": transformers.get_last_checkpoint,
    "transformers.Trainer": trained,
    "accelerate.Accelerator.save_state": lambda url: run_of().save_state(url),
    "accelerate.Accelerator": numbered,
    "accelerate.Accelerator.load_state": lambda url: run_of().load_state(url),
    "accelerate.Accelerator.save_model": lambda url: run_of().save_model(Layers(), f"{url}-layers"),
    "accelerate.load_checkpoint_in_model": lambda url: accelerate.load_checkpoint_in_model(
        Layers(), url, offload_folder=url
    ),
    "accelerate.load_checkpoint_and_dispatch": lambda url: accelerate.load_checkpoint_and_dispatch(
        Layers(), url, device_map={"": "cpu"}, offload_folder=url
    ),
    "orbax.CheckpointManager": lambda url: orbax().CheckpointManager(url),
    "orbax.CheckpointManager.restore": lambda url: orbax().CheckpointManager("none").restore(1, directory=url),
    "orbax.StandardCheckpointer.save": lambda url: saved_by(orbax().StandardCheckpointer(), url, ARRAYS),
    "orbax.StandardCheckpointer.restore": lambda url: orbax().StandardCheckpointer().restore(url),
    "orbax.Checkpointer.save": lambda url: saved_by(orbax().Checkpointer(), url, ARRAYS),
    "orbax.Checkpointer.restore": lambda url: orbax().Checkpointer().restore(url),
    "distributed.TensorkeepWriter": lambda url: dcp.save(
        dict(TENSORS), storage_writer=distributed.TensorkeepWriter(url), no_dist=True
    ),
    "distributed.TensorkeepReader": lambda url: dcp.load(
        dict(TENSORS), storage_reader=distributed.TensorkeepReader(url), no_dist=True
    ),
}
"""Every public function with a path to save to or to load from, called with a URL."""

REFUSED = {
    "tensorkeep.Encryption",
    "tensorkeep.Picture.save",
    "tensorkeep.edit",
    "tensorkeep.add_block_digests",
    "tensorkeep.add_sha256",
    "tensorkeep.fetch",
    "tensorkeep.push",
    "tensorkeep.sign",
    *(name for name in CALLS if name.startswith("tensorkeep.signing.")),
    "tensorkeep.Policy.of",
    "tensorkeep.trust.Authority.read",
    "tensorkeep.remote",
    "tensorkeep.checkpoint.save_folder",
    "tensorkeep.server.Server",
    "skorch.save_params",
    "tensorkeep.patches.apply",
    "tensorkeep.patches.undo",
    "transformers.from_pretrained",
}
"""Those that need a local path."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served_bucket:
        yield served_bucket


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def test_every_function_that_takes_a_path_is_called() -> None:
    assert {*with_paths()} - CALLS.keys() == set()


@pytest.mark.parametrize("root", ["memory://everywhere", "s3://models"])
def test_urls_are_used_or_refused(root: str, bucket: Bucket, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    tensorkeep.save_checkpoint(STATE, f"{root}/there")

    for name, call in CALLS.items():
        refused = None
        try:
            with warnings.catch_warnings(action="ignore"):
                call(f"{root}/there")
        except TensorkeepError as error:
            refused = error
        assert os.listdir(place) == [], name
        assert (name in REFUSED) == ("local paths only" in str(refused)), f"{name}: {refused}"


def test_what_pathlib_makes_of_a_url_is_no_path(place: Path) -> None:
    path = Path("s3://models/there")

    for name, call in CALLS.items():
        with pytest.raises(BaseException, match=r"(?i)no manifest|no such file|not a URL|pathlib took"):
            pytest.fail(f"{name} returned {call(path)}")
        assert os.listdir(place) == [], name
    for call in (lambda: tensorkeep.load(path), lambda: tensorkeep.save_checkpoint(STATE, path)):
        with pytest.raises(UnsupportedError, match=r"expected s3://, found s3:/\. Pass URLs as text"):
            call()


def test_a_directory_may_be_named_like_a_scheme(place: Path) -> None:
    Path("s3:").mkdir()

    tensorkeep.save_checkpoint(STATE, Path("s3:/model"))
    assert tensorkeep.load("s3:/model")["step"] == 1
