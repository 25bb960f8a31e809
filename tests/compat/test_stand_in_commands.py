"""`tensorkeep run` and `tensorkeep install-hook`: programs that nobody edits, where safetensors is not installed."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import tensorkeep
from tests.support import SUPPORT

LIMIT_S = 240
VARIABLE = "TENSORKEEP_AS_SAFETENSORS"
WHO = "from safetensors.numpy import save_file; print(save_file.__module__)"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python with all packages but safetensors, and with site-packages of its own."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "tensorkeep").symlink_to(Path(tensorkeep.__file__).parent)
    for package in (package for path in sys.path if path.endswith("-packages") for package in Path(path).iterdir()):
        is_left_out = package.name.startswith(("safetensors", "__")) or package.suffix == ".pth"
        if not is_left_out and not os.path.lexists(own / package.name):
            (own / package.name).symlink_to(package)
    return folder / "bin" / "python"


def run(python, *arguments, code=0, **environment):
    done = subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
    )
    assert done.returncode == code, done.stderr
    return done.stdout if not code else done.stderr


def test_safetensors_is_absent(python):
    assert "No module named 'safetensors'" in run(python, "-c", WHO, code=1)


def test_the_libraries_run_on_tensorkeep(python, tmp_path):
    program = SUPPORT / "libraries_on_tensorkeep.py"
    assert run(python, "-m", "tensorkeep", "run", program, tmp_path).split() == [
        *("transformers", "huggingface_hub", "accelerate", "skorch", "torch.distributed.checkpoint", "done")
    ]


def test_a_module_runs(python, tmp_path):
    (tmp_path / "who.py").write_text(f"import sys; {WHO}; print(sys.argv[1:], __name__, __spec__.name)")
    done = subprocess.run(
        [python, "-m", "tensorkeep", "run", "-m", "who", "--a", "b"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.stdout == "tensorkeep.numpy\n['--a', 'b'] __main__ who\n", done.stderr


PROGRAMS = {
    "exit code": ("import sys; sys.exit(7)", 7, ""),
    "error": ("open('/nowhere')", 1, "FileNotFoundError"),
    "neighbour": ("import beside; print(beside.VALUE)", 0, "3"),
    "warning": ("import warnings; warnings.warn('mind this')", 0, ""),
    "streams": ("import sys; print(sys.stdout.errors, sys.stderr.errors)", 0, ""),
}


@pytest.mark.parametrize(("program", "code", "text"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_runs_as_by_python(tmp_path, program, code, text):
    (tmp_path / "beside.py").write_text("VALUE = 3")
    (tmp_path / "program.py").write_text(program)
    outputs = []
    for prefix in ([], ["-m", "tensorkeep", "run"]):
        done = subprocess.run(
            [sys.executable, *prefix, tmp_path / "program.py"],
            capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        assert text in done.stdout + done.stderr
        outputs.append((done.stdout, done.stderr.splitlines()[-1:]))
    assert outputs[0] == outputs[1]


def test_a_program_that_is_not_there(python, tmp_path):
    assert "No such file or directory: nope.py" in run(python, "-m", "tensorkeep", "run", "nope.py", code=2)


def test_the_hook(python, tmp_path):
    written = run(python, "-m", "tensorkeep", "install-hook")
    (hook,) = python.parent.parent.glob("lib/python*/site-packages/tensorkeep-hook.pth")
    assert str(hook) in written.replace("\n", "")
    assert run(python, "-c", WHO, **{VARIABLE: "1"}) == "tensorkeep.numpy\n"
    child = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {WHO!r}]))"
    assert run(python, "-c", child, **{VARIABLE: "0.9"}) == "tensorkeep.numpy\n"
    (tmp_path / "parent.py").write_text(child)
    assert run(python, "-m", "tensorkeep", "run", tmp_path / "parent.py") == "tensorkeep.numpy\n"
    for value in ("", "0"):
        assert "No module named 'safetensors'" in run(python, "-c", WHO, code=1, **{VARIABLE: value})
    assert str(hook) in run(python, "-m", "tensorkeep", "install-hook", "--remove").replace("\n", "")
    assert not hook.exists()
    assert "there is no" in run(python, "-m", "tensorkeep", "install-hook", "--remove")
    assert "No module named 'safetensors'" in run(python, "-c", WHO, code=1, **{VARIABLE: "1"})
