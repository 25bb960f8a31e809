"""What reads a checkpoint takes the key of an encrypted one, and says without a key how to give it."""

from __future__ import annotations

import importlib
import inspect
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.cli.commands import GROUPS
from tensorkeep.cli.inputs import ungrouped
from tests.support.public_functions import MODULES, with_paths

KEY = tensorkeep.Key(bytes(range(32)))
NAME = "model.layers.0.mlp.experts.0.gate_proj.weight"
EXPERT = ("gate_proj", "up_proj", "down_proj")

CALLS: dict[str, str] = {
    "inspect": f"secret --filter {NAME}",
    "slice": f"secret {NAME} [0]",
    "verify": f"secret --name {NAME}",
    "check": "secret --data --against other",
    "diff": "secret other --no-values",
    "convert": "secret out",
    "export": "secret out.npz",
    "reshard": "secret out",
    "join": "secret alone out",
    "patch": "make secret other -o out",
    "merge average": "secret other -o out",
    "merge ema": "secret other -o out --decay 0.5",
    "merge slerp": "secret other -o out --t 0.5",
    "merge task-arithmetic": "secret other -o out",
    "merge ties": "secret other -o out --density 0.5",
    "merge dare": "secret other -o out --density 0.5 --seed 1",
    "merge dare-ties": "secret other -o out --density 0.5 --seed 1",
    "lora add": "secret adapter -o out",
    "lora extract": "secret other -o out --rank 1",
    "transform stack-experts": "secret -o out",
    "transform split-experts": "stacked -o out --layout qwen",
    "transform vocabulary": "secret -o out --size 8",
    "transform drop-layers": "secret -o out --layers 1",
    "transform sparsify": "secret -o out --zeros 0.5",
    "transform relabel": "secret -o out --to modelopt",
}
"""Each command that reads tensors, with arguments to read something encrypted."""

NO_KEY = {
    "view": "runs until it is stopped; it is called below",
    "scan": "an encrypted file holds nothing that any program would run",
    "edit": "encrypted files are never changed",
    "add-block-digests": "works on files as they are stored",
    "list": "what it shows is not encrypted",
    "prune": "removes files as they are stored",
    "fetch": "copies files as they are stored",
    "push": "copies files as they are stored",
    "serve": "sends files as they are stored",
    "keygen": "reads no checkpoint",
    "sign": "signs files as they are stored",
    "run": "runs a program, which has the key in its environment",
    "install-hook": "reads no checkpoint",
}

AS_STORED = {
    "tensorkeep.add_block_digests",
    "tensorkeep.add_sha256",
    "tensorkeep.edit",
    "tensorkeep.fetch",
    "tensorkeep.push",
    "tensorkeep.scan",
    "tensorkeep.server.Server",
}
"""Functions that handle files as they are stored."""

ELSEWHERE = {
    "tensorkeep.CheckpointStore": "its `encrypt` is the key for reading too",
    "tensorkeep.follow": "a feed is plain: publishing what is encrypted is refused",
    "tensorkeep.patches.Publisher": "the same",
    "tensorkeep.patches.Update.apply_to": "the same",
    "tensorkeep.torch.restore": "takes objects by any name, also `key`; give it what `load(path, key=)` returned",
    "tensorkeep.safe_open": "has the arguments of safetensors; the key is in the environment",
    "tensorkeep.torch.load_file": "the same",
    "tensorkeep.torch.load_model": "the same",
    "tensorkeep.numpy.load_file": "the same",
}

NO_CHECKPOINT = ("tensorkeep.signing.", "tensorkeep.Encryption", "tensorkeep.Policy", "tensorkeep.Picture.save")
WRITERS = tuple(
    f"tensorkeep.{name}"
    for name in ("save", "serialize", "writing", "remote", "jax.save", "numpy.save", "torch.save")
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with encrypted models, an adapter for them, and their key."""
    root = tmp_path_factory.mktemp("encrypted")
    (root / "aes.key").write_text(bytes(range(32)).hex())
    chosen = np.random.default_rng(1)

    def weights() -> dict[str, Any]:
        layers = {
            f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight": (4, 4)
            for layer in range(2)
            for expert in range(2)
            for part in EXPERT
        }
        shapes = {"model.embed_tokens.weight": (6, 4), "lm_head.weight": (6, 4), **layers}
        return {name: chosen.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    model = weights()
    tensorkeep.save_checkpoint(model, root / "secret", encrypt=KEY)
    tensorkeep.save_checkpoint(weights(), root / "other", encrypt=KEY)
    tensorkeep.save_checkpoint({"alone": np.ones(3)}, root / "alone", encrypt=KEY)
    with tensorkeep.open(root / "secret", key=KEY) as opened:
        stacked = tensorkeep.transforms.stack_experts(opened)
        tensorkeep.save_checkpoint(stacked, root / "stacked", encrypt=KEY)
    layer = "base_model.model.model.layers.0.mlp.experts.0.gate_proj"
    factors = {f"{layer}.lora_A.weight": (1, 4), f"{layer}.lora_B.weight": (4, 1)}
    tensorkeep.save_checkpoint(
        {name: np.ones(shape, np.float32) for name, shape in factors.items()},
        root / "adapter",
        base_name="adapter_model",
        encrypt=KEY,
    )
    (root / "adapter" / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["gate_proj"]})
    )
    return root


@pytest.fixture(autouse=True)
def no_key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENSORKEEP_KEY", "TENSORKEEP_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_every_command_is_here() -> None:
    commands = {command.name: command.function for group in GROUPS.values() for command in group}

    assert CALLS.keys() | NO_KEY.keys() == commands.keys()
    takes = {
        name for name, function in commands.items() if "key_file" in inspect.signature(ungrouped(function)).parameters
    }
    assert takes == CALLS.keys() | {"view"}


@pytest.mark.parametrize("command", CALLS)
def test_commands_take_a_key_and_say_so(
    command: str, places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in places.iterdir():
        os.symlink(path, path.name)
    before = set(os.listdir())
    words = [*command.split(), *CALLS[command].split()]

    assert main(words) == 2
    error = capsys.readouterr().err
    assert "encrypted" in error
    assert "--key-file" in error
    assert set(os.listdir()) == before
    status = main([*words, "--key-command", "cat aes.key"])
    captured = capsys.readouterr()
    if command == "transform relabel":  # the model is not quantized
        assert "encrypted" not in captured.err
    else:
        assert (status, captured.err) in [(0, ""), (1, "")], captured.err


def test_every_function_is_here() -> None:
    own = [module for module in MODULES if not module.startswith("tensorkeep.integrations")]
    missing = {
        name
        for name in with_paths(own)
        if not name.startswith((*NO_CHECKPOINT, *WRITERS)) and "key" not in inspect.signature(_found(name)).parameters
    }

    assert missing == AS_STORED | ELSEWHERE.keys()


def _found(name: str) -> Any:
    module, _, rest = name.partition(".")
    found: Any = importlib.import_module(module)
    for part in rest.split("."):
        found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
    return found
