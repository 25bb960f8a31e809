"""The hooks for pre-commit and the action for GitHub: what they run is run here, as they run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import tensorkeep
from tensorkeep.kinds.registry import known_suffixes
from tests.support import ROOT

HOOKS: dict[str, dict[str, Any]] = {
    hook["id"]: hook for hook in yaml.safe_load(ROOT.joinpath(".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
}
ACTION = yaml.safe_load(ROOT.joinpath("action.yml").read_text(encoding="utf-8"))
EXTRAS = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
EVIL = b"cos\nsystem\n(S'true'\ntR."


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    tensorkeep_(folder, "keygen", "k.pem")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A git repository with weights."""
    git(tmp_path, "init", "-q", "-b", "main")
    tensorkeep.save_checkpoint({"w": np.ones(100)}, tmp_path / "weights", sha256=True)
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {"PATH": path, "GIT_CONFIG_GLOBAL": os.devnull, "NO_COLOR": "1"} | more


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org", *arguments]
    subprocess.run(command, cwd=folder, check=True, env=environment())


def tensorkeep_(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "tensorkeep", *arguments], cwd=folder, check=True, env=environment())


def test_hooks_install_what_the_extras_name() -> None:
    for name, hook in HOOKS.items():
        expected = EXTRAS["cli"] + ([] if name == "tensorkeep-verify" else EXTRAS["trust"])
        assert hook["additional_dependencies"] == expected


def test_hooks_begin_for_every_kind_of_file() -> None:
    matches = re.compile(HOOKS["tensorkeep-scan"]["files"]).search
    seldom = {".index", ".meta", ".metadata", ".xml", ".arrow", ".arrows", ".feather", ".ipc", ".parquet"}

    missing = {suffix for suffix in known_suffixes() if not suffix.endswith(".json") and not matches(f"a{suffix}")}
    assert missing <= seldom, "files that are not weights, mostly"


def test_hooks_for_pre_commit(folder: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`language: system`, so that nothing is installed; the rest is as the definition says."""
    keys.joinpath("policy.toml").write_text('[[rules]]\nkeys = ["k.pub"]\nformats = ["safetensors"]\n')
    policy = str(keys / "policy.toml")
    arguments = {
        "tensorkeep-scan": ["--trust", policy, "--"],
        "tensorkeep-verify": ["weights"],
        "tensorkeep-trust": [policy, "weights"],
    }
    hooks = [
        {key: value for key, value in hook.items() if key != "additional_dependencies"}
        | {"language": "system", "args": arguments.get(name, [])}
        for name, hook in HOOKS.items()
    ]
    folder.joinpath(".pre-commit-config.yaml").write_text(
        yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]})
    )
    tensorkeep_(folder, "sign", "weights", "--key", str(keys / "k.pem"))
    home = tmp_path_factory.mktemp("pre-commit")

    def failing() -> set[str]:
        git(folder, "add", "-A")
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files"],
            cwd=folder,
            env=environment(PRE_COMMIT_HOME=str(home)),
            capture_output=True,
            text=True,
        )
        found = re.findall(r"^(.+?)\.\.+(Passed|Failed)$", done.stdout, re.MULTILINE)
        assert len(found) == len(HOOKS), done.stdout + done.stderr
        return {name for name, verdict in found if verdict == "Failed"}

    names = {name: hook["name"] for name, hook in HOOKS.items()}
    assert failing() == set()

    folder.joinpath("weights", "other.pt").write_bytes(EVIL)
    shard = folder / "weights" / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x01")
    assert failing() == set(names.values())


def test_no_name_keeps_a_file_from_the_scan(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    hook = {key: value for key, value in HOOKS["tensorkeep-scan"].items() if key != "additional_dependencies"}
    hooks = [hook | {"language": "system"}]
    folder.joinpath(".pre-commit-config.yaml").write_text(
        yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]})
    )
    home = tmp_path_factory.mktemp("pre-commit")
    for name in ("EVIL.PT", "--help.pt", "--trust=key.pt"):
        folder.joinpath(name).write_bytes(EVIL)
        git(folder, "add", "-A")
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files"],
            cwd=folder,
            env=environment(PRE_COMMIT_HOME=str(home)),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert re.search(f"dangerous +{name}", done.stdout), done.stdout
        git(folder, "rm", "-q", "--cached", "--", name)
        folder.joinpath(name).unlink()


@pytest.mark.parametrize("name", ["scan", "verify"])
@pytest.mark.parametrize("value", ["True", "yes", ""])
def test_the_action_takes_only_true_and_false(folder: Path, name: str, value: str) -> None:
    status, said, _ = run_action(folder, paths="weights", **{name: value})

    assert (status, said) == (2, "The inputs scan and verify must be true or false.\n")


def check_step() -> dict[str, Any]:
    (step,) = (each for each in ACTION["runs"]["steps"] if each.get("id") == "check")
    return step


def run_action(folder: Path, **inputs: str) -> tuple[int, str, dict[str, Any]]:
    """Run the shell of the action as a runner does: inputs in the environment, `bash -e -o pipefail`."""
    values = {name: inputs.get(name, each.get("default", "")) for name, each in ACTION["inputs"].items()}
    env = {
        key: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: values[found[1]], text)
        for key, text in check_step()["env"].items()
    }
    runner = folder / "runner"
    (runner / "tensorkeep").mkdir(parents=True, exist_ok=True)
    bin_ = runner / "tensorkeep" / "bin"
    if not bin_.exists():
        bin_.symlink_to(Path(sys.executable).parent)
    script = folder / "script.sh"
    script.write_text(check_step()["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=folder,
        env=environment(RUNNER_TEMP=str(runner), GITHUB_OUTPUT=str(runner / "output"), **env),
        capture_output=True,
        text=True,
    )
    sarif = {path.stem: json.loads(path.read_text()) for path in (folder / values["sarif"]).glob("*.sarif")}
    return done.returncode, done.stdout + done.stderr, sarif


def test_the_action(folder: Path, keys: Path) -> None:
    tensorkeep_(folder, "sign", "weights", "--key", str(keys / "k.pem"))
    status, said, sarif = run_action(folder, paths="weights\n", trust=str(keys / "k.pub"))
    assert (status, said, set(sarif)) == (0, "", {"scan-1", "verify-1"})
    assert (folder / "runner" / "output").read_text() == "sarif=tensorkeep-sarif\n"

    weights = folder / "weights" / "w.pt"
    torch.save({"w": torch.ones(3)}, weights)
    status, said, sarif = run_action(folder, paths=str(weights), trust=str(keys / "k.pub"), verify="false")
    assert (status, sarif["scan-1"]["runs"][0]["results"][0]["ruleId"]) == (1, "refused")
    weights.unlink()

    evil = folder / "a $(touch owned) b"
    evil.mkdir()
    evil.joinpath("::error::.pt").write_bytes(EVIL)
    status, said, sarif = run_action(folder, paths=f"missing\n\n{evil.name}", verify="false", sarif="out dir")
    assert status == 1
    assert set(sarif) == {"scan-2"}, "what gives no answer gives no document"
    assert re.search(r'^error "(posix|os)\.system', said, re.MULTILINE)
    assert not re.search("^::", said, re.MULTILINE)
    assert not folder.joinpath("owned").exists()


def test_the_action_gives_no_text_from_outside_to_a_shell() -> None:
    steps = ACTION["runs"]["steps"]

    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    assert [step["uses"] for step in steps if "uses" in step] == []
