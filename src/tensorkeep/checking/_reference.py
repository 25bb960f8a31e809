"""What `against=` means: another checkpoint, a config, a model, or a class of models."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorkeep.checking._architecture import clean_environment, described
from tensorkeep.checking._comparison import Form, Reference
from tensorkeep.checking._names import Expected, Headers
from tensorkeep.checking._quantized import plain_headers, quantized_in
from tensorkeep.checking._settings import MAX_CONFIG_NBYTES, Settings, parse_config
from tensorkeep.checkpoint import open_with
from tensorkeep.encryption import Keys
from tensorkeep.errors import LimitError, MissingDependencyError, SourceMissingError, UnsupportedError
from tensorkeep.kinds import Opened, OpenOptions
from tensorkeep.tensors import LazyTensor, LazyTensors
from tensorkeep.transport import ByteRange, is_directory, join, open_source, split

if TYPE_CHECKING:
    from tensorkeep.trust import Trust

Against: TypeAlias = "str | os.PathLike[str] | Mapping[str, LazyTensor] | Callable[[], Any]"
"""What a checkpoint may be compared with."""

_PROGRAM: Final = "from tensorkeep.checking._architecture import main; main()"
_TIMEOUT_S: Final = 300
_class_named: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII).fullmatch

CONFIG: Final = "config.json"


class NeedsCodeError(Exception):
    """A config is of a model whose code is beside it or on a server, and is not run."""


def headers_of(tensors: Mapping[str, LazyTensor]) -> Headers:
    """Return the headers of all tensors; of an open file as they are in it, which takes a tenth of the time."""
    if isinstance(tensors, Opened):
        described = tensors.describe()
        entries = described.stored or {
            name: entry for file in described.files for name, entry in file.entries.items()
        }
        if entries.keys() == set(tensors):
            return entries
    return {name: Expected(lazy.dtype, lazy.shape) for name, lazy in tensors.items()}


def _plain(tensors: Mapping[str, LazyTensor]) -> Headers:
    """Return the headers of another checkpoint as it is compared: quantized tensors have their true shapes."""
    headers = headers_of(tensors)
    return plain_headers(headers, quantized_in(tensors, headers)) if isinstance(tensors, LazyTensors) else headers


def config_beside(path: str) -> Settings | None:
    """Read the `config.json` of a directory, or beside a file, if it is there."""
    directory = path if is_directory(path) else split(path)[0]
    with suppress(SourceMissingError):
        return parse_config(read_config(join(directory, CONFIG)))
    return None


def config_of(opened: Opened) -> Settings | None:
    """Read the `config.json` beside an open checkpoint, if it is there; under a policy, it must have been signed."""
    if opened.proof is None:
        return config_beside(opened.path)
    with suppress(SourceMissingError):
        return parse_config(opened.companion(CONFIG, max_nbytes=MAX_CONFIG_NBYTES))
    return None


def reference_of(against: Any, path: str | None, keys: Keys | None, trust: Trust | None) -> Reference:
    """Return the tensors that are expected in the checkpoint at a path; keys and trust are for another checkpoint."""
    if isinstance(against, Mapping):
        name = f"`{against.path}`" if isinstance(against, Opened) else "the other checkpoint"
        return Reference(name, [Form(_plain(against))])
    if isinstance(against, str | os.PathLike):
        text = os.fspath(against)
        if _class_named(text) and not os.path.exists(text):
            return _of_class(text, path)
        if text.endswith(".json") and not text.endswith(".index.json") and ".index." not in os.path.basename(text):
            return _of_config(text, None)
        return _of_path(text, keys, trust)
    return _of_model(against)


def _of_path(path: str, keys: Keys | None, trust: Trust | None) -> Reference:
    try:
        with open_with(path, OpenOptions(keys=None if keys is None else keys.optional()), trust) as other:
            other.require_names()
            return Reference(f"`{path}`", [Form(_plain(other))])
    except SourceMissingError:
        if not is_directory(path) or config_beside(path) is None:
            raise
        return _of_config(join(path, CONFIG), None)


def _of_class(text: str, path: str | None) -> Reference:
    module, _, name = text.partition(":")
    if module == "transformers" and path is not None:  # its models need a config
        return _of_config(join(path if is_directory(path) else split(path)[0], CONFIG), name)
    try:
        return _of_model(pkgutil.resolve_name(text))
    except (ImportError, AttributeError, TypeError) as error:
        raise UnsupportedError(
            f"{text} cannot be imported",
            expected="MODULE:CLASS of a model that needs no arguments, or a function that makes one",
            found=str(error),
        ) from error


def _of_model(model: Any) -> Reference:
    """Return the tensors of a model, or of what a class or a function makes."""
    start = perf_counter()
    made = model
    if not hasattr(model, "state_dict") or isinstance(model, type):
        if not callable(model):
            raise TypeError(f"`against` is a {type(model).__name__}, not a path, a checkpoint, a model or a class")
        import torch

        with torch.device("meta"):
            made = _made_by(model)
    if not hasattr(made, "state_dict"):
        raise TypeError(f"`against` makes a {type(made).__name__}, which has no state_dict")
    form = _form_of(described(made.state_dict(keep_vars=True)))
    seconds = perf_counter() - start if made is not model else 0.0
    return Reference(type(made).__name__, [form], seconds=seconds)


def _made_by(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        raise UnsupportedError(
            "the model cannot be made",
            expected="a class or function that needs no arguments and works on device meta",
            found=f"{type(error).__name__}: {error}",
        ) from error


def _of_config(path: str, class_name: str | None) -> Reference:
    start = perf_counter()
    _, answer = built_by_library(path, {"class": class_name})
    return Reference(
        answer["model"],
        [_form_of(form) for form in answer["forms"]],
        [re.compile(pattern) for pattern in answer["may_lack"]],
        [re.compile(pattern) for pattern in answer["may_add"]],
        answer["prefix"],
        perf_counter() - start,
        is_library=True,
    )


def built_by_library(path: str, wanted: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Let transformers build the model of a config in a process of its own; return the config, and the answer."""
    text = read_config(path)
    settings = parse_config(text)
    if settings is None or not isinstance(settings.top.get("model_type"), str):
        raise UnsupportedError(
            "this is not the config of a model", path=path, expected="a JSON object with model_type"
        )
    if find_spec("transformers") is None or find_spec("torch") is None:
        raise MissingDependencyError(
            "transformers and torch build the model of a config, and one of them is not installed",
            path=path,
            hint="Install it: pip install transformers torch; or compare with another checkpoint",
        )
    answer = _built({"config": settings.top, **wanted})
    if "refused" in answer:
        if "auto_map" in answer["refused"]:
            raise NeedsCodeError(answer["refused"])
        raise UnsupportedError("no model can be built from this config", path=path, found=answer["refused"])
    return settings, answer


def _built(request: Mapping[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-P", "-c", _PROGRAM]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command,
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=clean_environment(),
        )
    except subprocess.TimeoutExpired:
        raise LimitError(
            "building the model of the config takes too long", expected=f"at most {_TIMEOUT_S} s"
        ) from None
    if done.returncode:
        raise UnsupportedError(
            "the program that builds the model failed", found=done.stderr.decode(errors="replace")[-500:]
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _form_of(found: Mapping[str, Any]) -> Form:
    return Form({name: Expected("", tuple(shape)) for name, shape in found["tensors"].items()}, found["tied"])


def read_config(path: str) -> bytes:
    """Return the content of a config, which may not be large."""
    source = open_source(path)
    if source.nbytes > MAX_CONFIG_NBYTES:
        raise LimitError(
            "the config is too large",
            path=path,
            expected=f"at most {MAX_CONFIG_NBYTES:,} bytes",
            found=f"{source.nbytes:,}",
        )
    return bytes(source.read(ByteRange(0, source.nbytes)))
