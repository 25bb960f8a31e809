"""Models in directories: saved with everything that belongs to them, and checked before they are loaded."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any, Final, Literal

import torch
from huggingface_hub import ModelHubMixin
from transformers import PreTrainedModel

from tensorkeep.arrays.torch.partitioned import refuse_partitioned
from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.checkpoint import verify as verify_checkpoint
from tensorkeep.dtypes import find_dtype
from tensorkeep.errors import (
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    StateDictMismatchError,
    UnsupportedError,
)
from tensorkeep.integrations.transformers._directory import changed_together
from tensorkeep.integrations.transformers._remote import fetched, sent_together
from tensorkeep.integrations.transformers._ties import tie_again
from tensorkeep.integrations.transformers._weights import SHARD_SIZE, weights_with_digests
from tensorkeep.kinds import refuse
from tensorkeep.layout import parse_size
from tensorkeep.texts import listed
from tensorkeep.transport import is_remote

_N_LISTED: Final = 10
"""Names in a message."""

_WITHOUT: Final = "strict=False fills them with random numbers, as for a new head"


def save_pretrained(
    model: Any,
    directory: str | os.PathLike[str],
    *,
    tokenizer: Any = None,
    max_shard_size: int | str = SHARD_SIZE,
    variant: str | None = None,
    sha256: bool = False,
    durable: bool = True,
    **options: Any,
) -> None:
    """Save a model with its configuration and tokenizer to a directory, completely or not at all.

        save_pretrained(model, "my-model", tokenizer=tokenizer)

    The libraries themselves decide what is saved: configuration, weights and their names, an adapter alone. Tensors
    get digests, and all files change together: if the process is killed, the directory holds the old model or the new
    one. `transformers.AutoModel.from_pretrained` reads it, with or without tensorkeep.

    Tied weights stay tied, even if the configuration does not declare them: these are saved under each name, so that
    all readers get the right values, and this module's `from_pretrained` ties them again.

    Args:
        model: A model of transformers or peft, or one with `PyTorchModelHubMixin` of huggingface_hub.
        directory: The directory, created if it does not exist. Other files in it stay, except shards of the old
            model. Or the URL of a directory in a bucket: the model is saved to a temporary directory first, and its
            weights are the last to change in the bucket.
        tokenizer: A tokenizer, a processor, or a list of them, to save with the model: anything with
            `save_pretrained`.
        max_shard_size: Largest size of a shard: a number of bytes, or text such as `"5GB"`. A larger tensor gets its
            own shard.
        variant: Part of the file names, such as `"fp16"` for `model.fp16.safetensors`.
        sha256: Whether to store the SHA-256 of each shard in the index, as Git LFS and the Hub use it.
        durable: Whether to wait until data is on the disk (fsync), so that even a power cut cannot lose it.
        **options: Passed to the model's own `save_pretrained`.

    Raises:
        UnsupportedError: If a size is invalid, or an option asks for another format or an upload.
        TypeError: If the model's `save_pretrained` has no such option.
        DtypeError: If safetensors has no such dtype.
        BusyError: If another process is saving there.
        TransportError: If the directory cannot be written. It is then unchanged.
    """
    parse_size(max_shard_size)
    _refuse_options(options)
    _refuse_unknown(model, options)
    if "state_dict" not in options and isinstance(model, torch.nn.Module):
        refuse_partitioned(model)
    if variant is not None:
        options["variant"] = variant
    stem, text = stem_of(model, variant), os.fsdecode(directory)
    place = (
        sent_together(text, stem, sha256=sha256) if is_remote(text) else changed_together(text, stem, durable=durable)
    )
    with place as folder:
        with weights_with_digests(model, folder, max_shard_size=max_shard_size, sha256=sha256) as state:
            if state is not None:
                options.setdefault("state_dict", state)
            model.save_pretrained(folder, **options)
        for part in tokenizer if isinstance(tokenizer, list | tuple) else [tokenizer]:
            if part is not None:
                part.save_pretrained(folder)


def stem_of(model: Any, variant: str | None = None) -> str:
    """Return the start of the file names of a saved model."""
    has_adapters = _is_peft(type(model)) or getattr(model, "_hf_peft_config_loaded", False)
    return ("adapter_model" if has_adapters else "model") + (f".{variant}" if variant else "")


def _is_peft(cls: type) -> bool:
    """Say whether a class is from peft, without importing peft."""
    peft = sys.modules.get("peft")
    return peft is not None and issubclass(cls, peft.PeftModel)


_REFUSED: Final[dict[str, tuple[bool, str]]] = {
    "push_to_hub": (True, "Save first, then push the directory"),
    "distributed_checkpoint": (True, "Leave it out: the weights are gathered"),
    "is_main_process": (False, "Save in the main process only"),
    "safe_serialization": (False, "Leave it out: no pickle is written"),
}
"""Option to the unsupported value, and what to do instead."""


def _refuse_options(options: dict[str, Any]) -> None:
    for name, (value, hint) in _REFUSED.items():
        if name in options and bool(options[name]) is value:
            raise UnsupportedError(f"{name}={options[name]!r} is not supported for this save", hint=hint)


def _refuse_unknown(model: Any, options: dict[str, Any]) -> None:
    """Refuse options that a library would silently pass to an upload, which is not done here."""
    method = model.save_pretrained
    if method.__module__.partition(".")[0] not in {"transformers", "peft", "huggingface_hub"}:
        return
    known = {*inspect.signature(method).parameters, *_REFUSED, "max_shard_size", "variant", "state_dict", "token"}
    for name in options.keys() - known:
        near = get_close_matches(name, [*known, "tokenizer", "sha256", "durable"], 1)
        suggestion = f", did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"save_pretrained of {type(model).__name__} has no option {name!r}{suggestion}")


def from_pretrained(
    cls: Any,
    directory: str | os.PathLike[str],
    *,
    verify: bool | Literal["require"] = True,
    strict: bool = True,
    **options: Any,
) -> Any:
    """Load a model from a directory, after checking every byte of its weights against its digest.

        model = from_pretrained(transformers.AutoModelForCausalLM, "my-model", dtype="auto")
        model = from_pretrained(peft.PeftModel, "my-adapter", model=model)

    The library itself loads the model, so `dtype`, `device_map` and all other options work as usual.

    Args:
        cls: A model class or an `Auto…` class of transformers, a class of peft, or one with `PyTorchModelHubMixin` of
            huggingface_hub.
        directory: A local directory. A URL, or the id of a model on the Hub such as `"org/model"`, is fetched first,
            to `cache_dir` if given and otherwise to the user's cache. The next call fetches only what changed. With
            HF_HUB_OFFLINE or `local_files_only=True`, what was fetched before or is in the Hub's cache is loaded.
        verify: Whether to check the weights first. Weights without digests, from other programs, are only checked
            against their headers and shard index; with `"require"` they are refused.
        strict: Whether to refuse a directory that lacks weights of the model. Otherwise transformers fills them with
            random numbers, such as those of a new head, and logs that.
        **options: Passed to the class's own `from_pretrained`.

    Returns:
        What the class's own `from_pretrained` returns.

    Raises:
        SourceMissingError: If there is no such directory, or no weights in it.
        SourceChangedError: If a model was saved there meanwhile.
        IntegrityError: If anything is damaged, or has no digest and `verify` is `"require"`.
        StateDictMismatchError: If weights are missing and `strict` is True.
        UnsupportedError: If `cls` is not such a class, or `verify` is invalid.
        DtypeError: If there is no such dtype.
        TensorkeepError: If the weights cannot be read; see `tensorkeep.verify`.
    """
    if verify not in (True, False, "require"):
        raise UnsupportedError("verify is invalid", expected='True, False or "require"', found=repr(verify))
    options |= {name: _dtype(options[name]) for name in ("dtype", "torch_dtype") if name in options}
    given = fetched(directory, options)
    folder = os.path.join(given, options.get("subfolder") or "")
    if not os.path.isdir(folder):
        is_file = os.path.lexists(folder.rstrip(os.sep))
        advice = (
            "the directory that the file is in"
            if is_file
            else "For a model on the Hub, pass its id, such as org/model"
        )
        raise SourceMissingError(
            "no such directory",
            path=folder,
            found="a file" if is_file else None,
            hint=f"Pass {advice}" if is_file else advice,
        )
    with open_checkpoint(folder, variant=options.get("variant")) as opened:
        path, metadata, names = opened.path, getattr(opened, "metadata", None), set(opened)
    with _unchanged(os.path.join(folder, os.path.basename(path))):
        if verify:
            _verify(folder, options.get("variant"), require=verify == "require")
        loaded = _load(cls, given, options, names, strict=strict)
    tie_again(loaded[0] if isinstance(loaded, tuple) else loaded, metadata)
    return loaded


def _dtype(dtype: Any) -> Any:
    """Return a dtype under a name that torch has, since transformers looks it up there."""
    if not isinstance(dtype, str) or dtype == "auto" or hasattr(torch, dtype):
        return dtype
    return getattr(torch, find_dtype(dtype).torch or "", dtype)


def _verify(folder: str, variant: str | None, *, require: bool) -> None:
    found = verify_checkpoint(folder, variant=variant)
    refuse(found.findings, folder)
    if require and found.n_unprotected:
        raise IntegrityError(
            "tensors have no digest, so they cannot be verified",
            path=folder,
            found=f"{found.n_unprotected:,} of {found.n_tensors:,}",
            hint="Pass verify=True to load them unverified, or make a copy with digests: `tensorkeep reshard`",
        )


@contextmanager
def _unchanged(path: str) -> Iterator[None]:
    """Check that no model was saved while the block read one: it could have seen files of both."""
    before = _identity(path)
    try:
        yield
    finally:
        if before is None or _identity(path) != before:
            raise SourceChangedError("a model was saved there while it was loaded", path=path, hint="Load it again")


def _identity(path: str) -> tuple[int, ...] | None:
    with suppress(FileNotFoundError):
        status = os.stat(path)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _load(cls: Any, directory: str, options: dict[str, Any], names: set[str], *, strict: bool) -> Any:
    """Load with the class's own method, and refuse weights that it filled with random numbers."""
    if issubclass(cls, PreTrainedModel) or hasattr(cls, "_model_mapping"):
        wants_info = options.pop("output_loading_info", False)
        model, info = cls.from_pretrained(directory, output_loading_info=True, **options)
        missing = info["missing_keys"]
        loaded = (model, info) if wants_info else model
    elif cls.__module__.partition(".")[0] == "peft" or _is_peft(cls):
        base = (options.pop("model"),) if "model" in options else ()
        loaded = cls.from_pretrained(*base, directory, **options)
        missing = _names_in_adapter(loaded, options.get("adapter_name", "default")) - names
    elif issubclass(cls, ModelHubMixin):
        return cls.from_pretrained(directory, strict=strict, **options)
    else:
        raise UnsupportedError(
            "missing weights cannot be detected for this class",
            expected="a class of models of transformers or peft, or one with PyTorchModelHubMixin",
            found=f"{cls.__module__}.{cls.__qualname__}",
        )
    if strict and missing:
        refuse_missing(sorted(missing), cls.__name__, directory, _WITHOUT)
    return loaded


def _names_in_adapter(model: Any, adapter: str) -> set[str]:
    from peft import get_peft_model_state_dict

    return set(get_peft_model_state_dict(model, adapter_name=adapter, save_embedding_layers=False))


def refuse_missing(missing: Sequence[str], model: str, path: str | None = None, hint: str | None = None) -> None:
    """Refuse a model some of whose weights are random."""
    raise StateDictMismatchError(
        f"the checkpoint lacks weights of {model}",
        path=path,
        found=f"{len(missing):,} missing: {listed(missing, _N_LISTED)}",
        hint=hint,
        missing=missing,
    )


def missing_weights(model: torch.nn.Module, missing: Iterable[str]) -> list[str]:
    """Return the names that were not loaded, neither themselves nor under the name of a tied weight."""
    lacking = {*missing} - {*(getattr(model, "_keys_to_ignore_on_save", None) or ())}
    state = model.state_dict(keep_vars=True)
    loaded = {id(tensor) for name, tensor in state.items() if name not in lacking}
    return sorted(name for name in lacking if id(state.get(name)) not in loaded)
