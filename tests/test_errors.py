"""The errors: one tree, drawn in the docstring; each keeps its fields and its builtin class across processes."""

from __future__ import annotations

import builtins
import errno
import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep import errors
from tensorkeep.errors import (
    AccessDeniedError,
    SafetensorError,
    SourceMissingError,
    TensorkeepError,
    TensorNotFoundError,
    TransportError,
    as_transport_error,
)

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TensorkeepError)]
FIELDS = {
    "message": "what happened",
    "path": "/models/a.safetensors",
    "tensor": "layer.0.weight",
    "expected": "4 bytes",
    "found": "3",
    "hint": "Get the file again",
}


def drawn_tree() -> dict[str, tuple[str, set[str]]]:
    """Read name, parent and builtin classes of each error from the module's docstring."""
    tree: dict[str, tuple[str, set[str]]] = {}
    open_levels: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^( {4,})(\w+Error)(?: \[([\w, ]+)\])?", line)
        if match is None:
            continue
        indent, name, builtin_names = len(match[1]), match[2], match[3] or ""
        while open_levels and open_levels[-1][0] >= indent:
            open_levels.pop()
        tree[name] = (open_levels[-1][1] if open_levels else "Exception", set(builtin_names.split(", ")) - {""})
        open_levels.append((indent, name))
    return tree


def test_the_docstring_draws_the_tree() -> None:
    drawn = drawn_tree()

    assert set(drawn) == {cls.__name__ for cls in CLASSES}
    for cls in CLASSES:
        parent, builtin_names = drawn[cls.__name__]
        assert cls.__bases__[0].__name__ == parent
        assert {base.__name__ for base in cls.__bases__[1:]} == builtin_names
        assert all(issubclass(cls, getattr(builtins, name)) for name in builtin_names)


def test_all_is_the_tree() -> None:
    assert set(errors.__all__) == {cls.__name__ for cls in CLASSES} | {
        "SafetensorError",
        "as_transport_error",
        "importing",
    }
    assert SafetensorError is TensorkeepError


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_pickles_with_all_its_fields(cls: type[TensorkeepError]) -> None:
    error = cls(**FIELDS)

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is cls
    assert copy.fields() == error.fields() == FIELDS
    assert str(copy) == str(error)
    assert copy.__class__.__mro__ == cls.__mro__


@pytest.mark.parametrize("cls", CLASSES)
def test_a_message_tells_the_whole_story(cls: type[TensorkeepError]) -> None:
    text = str(cls(**FIELDS))

    assert text == "what happened (/models/a.safetensors): expected 4 bytes, found 3. Get the file again"
    assert str(cls("what happened")) == "what happened"
    assert str(cls()) == ""


def test_a_path_is_not_said_twice() -> None:
    assert str(TensorkeepError("No such file: a.st", path="a.st")) == "No such file: a.st"


def test_a_path_that_is_a_word_of_the_message_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tensorkeep.save_checkpoint({"x": np.ones(3), "y": np.ones(3)}, "checkpoint", max_shard_size=24)
    next(Path("checkpoint").glob("*.safetensors")).unlink()

    with pytest.raises(SourceMissingError, match=r"^shards of the checkpoint are missing \(checkpoint\): "):
        tensorkeep.load("checkpoint")


def test_a_missing_tensor_reads_like_a_sentence_and_not_like_a_key() -> None:
    assert str(TensorNotFoundError("File does not contain tensor x")) == "File does not contain tensor x"


@pytest.mark.parametrize(
    ("cause", "cls"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), SourceMissingError),
        (PermissionError(errno.EACCES, "Permission denied"), AccessDeniedError),
        (OSError(errno.ENOSPC, "No space left on device"), TransportError),
        (OSError("no number at all"), TransportError),
    ],
)
def test_a_system_error_keeps_its_number_and_its_builtin_class(cause: OSError, cls: type[TransportError]) -> None:
    with pytest.raises(TransportError) as caught, as_transport_error("could not write the file", "/a"):
        raise cause
    copy = pickle.loads(pickle.dumps(caught.value))

    assert caught.value.__cause__ is cause
    for one in (caught.value, copy):
        assert type(one) is cls
        assert one.path == "/a"
        assert isinstance(one, OSError)
        assert one.errno == cause.errno
        assert (cause.strerror or str(cause)) in str(one)


def test_the_reason_of_the_system_is_not_called_found() -> None:
    with pytest.raises(SourceMissingError) as caught, as_transport_error("could not read the key", "key.pem"):
        Path("/nowhere/key.pem").read_bytes()

    for one in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert str(one) == f"could not read the key (key.pem): {os.strerror(errno.ENOENT)}"


def test_a_limit_on_files_says_what_to_do(tmp_path: Path) -> None:
    tensorkeep.save({"x": np.ones(10_000)}, tmp_path / "x.safetensors")
    command = f"ulimit -f 8; exec {sys.executable} -m tensorkeep reshard x.safetensors new"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 2
    assert "could not write the file" in done.stderr
    assert "model.safetensors): File too large. The limit on the size of files (ulimit -f)" in done.stderr


@pytest.mark.parametrize(("number", "hint"), [(errno.ENOSPC, "Free some space"), (errno.EDQUOT, "quota")])
def test_a_full_disk_says_what_to_do(number: int, hint: str) -> None:
    with pytest.raises(TransportError, match=hint), as_transport_error("could not write the file", "/a"):
        raise OSError(number, os.strerror(number))


def raise_in_worker(path: str) -> None:
    tensorkeep.load(path)


def test_an_error_comes_whole_out_of_a_worker_process(tmp_path: Path) -> None:
    path = tmp_path / "short.safetensors"
    path.write_bytes(b"1234567")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as workers:
        error = workers.submit(raise_in_worker, str(path)).exception()

    assert isinstance(error, errors.HeaderError)
    assert isinstance(error, ValueError)
    assert error.path == str(path)
    assert "header too small" in str(error)


def test_no_message_suggests_an_unsafe_way() -> None:
    source = Path(errors.__file__).parent
    texts = "\n".join(
        path.read_text(encoding="utf-8") for path in source.rglob("*.py") if path.name != "_danger_list.py"
    )

    unsafe = r"torch\.load\b(?!\(weights_only=True\))|weights_only\s*=\s*False|allow_pickle|trust_remote_code"
    assert not re.search(unsafe, texts)


def test_names_stay_when_fields_are_changed() -> None:
    error = errors.StateDictMismatchError("x", missing=["a"], unexpected=["b"], mismatched=[("c", (1,), (2,))])

    changed = error.with_fields(path="p")

    assert (changed.path, changed.missing, changed.unexpected) == ("p", ("a",), ("b",))
    assert changed.mismatched == error.mismatched
