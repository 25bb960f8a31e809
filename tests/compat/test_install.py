"""`install_as_safetensors`: real libraries that import safetensors run on tensorkeep unchanged."""

import os
import subprocess
import sys

from tests.support import SUPPORT

SCRIPT = SUPPORT / "libraries_on_tensorkeep.py"


def run(code_or_path, *arguments):
    command = [sys.executable, *(["-c", code_or_path] if isinstance(code_or_path, str) else [code_or_path])]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, env=environment)


def test_the_libraries_run_on_tensorkeep(tmp_path):
    result = run(SCRIPT, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [
        *("transformers", "huggingface_hub", "accelerate", "skorch", "torch.distributed.checkpoint", "done")
    ]


def test_nothing_heavy_is_imported():
    result = run(
        "import sys, tensorkeep; tensorkeep.install_as_safetensors(); import safetensors; "
        "print('torch' in sys.modules, safetensors.SafetensorError is tensorkeep.SafetensorError)"
    )
    assert result.stdout.split() == ["False", "True"], result.stderr


def test_twice_is_once():
    result = run(
        "import sys, tensorkeep; n = len(sys.meta_path); tensorkeep.install_as_safetensors(); "
        "tensorkeep.install_as_safetensors(); print(len(sys.meta_path) - n)"
    )
    assert result.stdout.strip() == "1", result.stderr


def test_a_library_that_was_imported_before_is_named():
    result = run(
        "import sys, types, safetensors, tensorkeep\n"
        "early = types.ModuleType('early'); early.safe_open = safetensors.safe_open; sys.modules['early'] = early\n"
        "tensorkeep.install_as_safetensors()\n"
        "import safetensors; print(safetensors.safe_open is tensorkeep.safe_open)"
    )
    assert result.stdout.strip() == "True", result.stderr
    assert "early imported safetensors before" in result.stderr


def test_the_version_is_found_without_the_package(tmp_path):
    hidden = (
        "import sys, importlib.metadata as m\n"
        "find = m.MetadataPathFinder.find_distributions\n"
        "m.MetadataPathFinder.find_distributions = lambda *a: "
        "(d for d in find(*a) if d.metadata['Name'] != 'safetensors')\n"
        "import tensorkeep; tensorkeep.install_as_safetensors(); print(m.version('safetensors'))"
    )
    result = run(hidden)
    assert result.stdout.strip() == "0.8.0", result.stderr


def test_modules_that_do_not_exist_yet_say_so():
    result = run("import tensorkeep; tensorkeep.install_as_safetensors(); import safetensors.flax")
    assert "No module named 'safetensors.flax'" in result.stderr
