"""`load_from_checkpoint`: modules and data modules created from checkpoints: their arguments, then their state."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Collection, Mapping
from typing import Any, Final

import torch

from tensorkeep.errors import UnsupportedError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.integrations.lightning._library import attribute_dict, library_of
from tensorkeep.integrations.lightning._placeholders import VERSION, refuse_placeholders
from tensorkeep.integrations.lightning._plugins import TensorkeepCheckpointIO
from tensorkeep.state import NamedData

_FIRST_KEYS: Final = ("hparams", "module_arguments")
"""Keys of hyper-parameters in early versions."""

_ADVICE: Final = "Pass plugin=TensorkeepCheckpointIO(classes=[{}]), or the argument itself"

_INSTANTIATOR: Final = "_instantiator"
_CLASS_PATH: Final = "_class_path"
"""Key that LightningCLI adds: the class of the module."""


def load_from_checkpoint(
    cls: type,
    checkpoint_path: str | os.PathLike[str],
    map_location: Any = None,
    *,
    strict: bool | None = None,
    weights_only: bool | None = None,  # noqa: ARG001 - Lightning's
    hparams_file: str | os.PathLike[str] | None = None,
    plugin: TensorkeepCheckpointIO | None = None,
    **kwargs: Any,
) -> Any:
    """Create a module or data module with the arguments and the state in a checkpoint.

        model = load_from_checkpoint(Classifier, "best.ckpt")

    It does what `cls.load_from_checkpoint(path)` does, for checkpoints of this plugin and of Lightning itself, but
    runs nothing in them: `cls` gets the saved hyper-parameters, `configure_model` and `on_load_checkpoint` are
    called, and the weights are loaded.

    Args:
        cls: A subclass of `LightningModule` or `LightningDataModule`.
        checkpoint_path: The file.
        map_location: Where tensors and the module go; see `TensorkeepCheckpointIO.load_checkpoint`.
        strict: Whether to refuse names that only the module or only the checkpoint has; None for the module's own
            `strict_loading`.
        weights_only: Ignored: nothing in a checkpoint is ever run.
        hparams_file: Only None is supported; pass the hyper-parameters in such a file as arguments.
        plugin: How to read the file, such as `TensorkeepCheckpointIO(classes=[Phase])`; None for the defaults.
        **kwargs: Arguments for the class, which override those in the checkpoint.

    Returns:
        The module or data module.

    Raises:
        UnsupportedError: If it is not a checkpoint of a Trainer, `cls` is not such a class, an argument was an object
            of a class that was not passed, or `hparams_file` is given.
        TypeError: If the class has no parameter of a given name.
        TensorkeepError: If the file cannot be read; see `TensorkeepCheckpointIO.load_checkpoint`.
        RuntimeError: If the weights do not fit the module.
        Exception: What the class itself raises.
    """
    if hparams_file is not None:
        raise UnsupportedError(
            "hyper-parameters are not read from a separate file",
            path=str(hparams_file),
            hint="Read the file, and pass its content: **yaml.safe_load(file)",
        )
    if not isinstance(cls, type):
        raise UnsupportedError(
            "not a class",
            expected="a subclass of LightningModule or LightningDataModule",
            found=f"an object of {type(cls).__name__}",
            hint=f"load_from_checkpoint({type(cls).__name__}, path)",
        )
    checkpoint = (plugin or TensorkeepCheckpointIO()).read(checkpoint_path, map_location)
    return _created(cls, checkpoint, kwargs, strict=strict, path=os.fsdecode(checkpoint_path))


def _created(cls: type, checkpoint: Any, given: dict[str, Any], *, strict: bool | None, path: str) -> Any:
    library = library_of(cls)
    if not isinstance(checkpoint, dict) or VERSION not in checkpoint:
        raise UnsupportedError(
            "not a checkpoint of Lightning's Trainer",
            path=path,
            expected=f"a dict with {VERSION}",
            found=", ".join(map(str, checkpoint)) if isinstance(checkpoint, dict) else type(checkpoint).__name__,
            hint="tensorkeep.torch.load_into loads weights into a module",
        )
    checkpoint, _ = library.utilities.migration.migrate_checkpoint(checkpoint)
    module = cls(**_arguments(cls, checkpoint, given, path))
    if issubclass(cls, library.LightningDataModule):
        if cls.__qualname__ in checkpoint:
            module.load_state_dict(checkpoint[cls.__qualname__])
        return module
    return _with_state(module, checkpoint, library, strict=strict)


def _with_state(module: Any, checkpoint: dict[str, Any], library: Any, *, strict: bool | None) -> Any:
    strict = module.strict_loading if strict is None else strict
    if library.utilities.model_helpers.is_overridden("configure_model", module):
        module.configure_model()
    module.on_load_checkpoint(checkpoint)
    keys = module.load_state_dict(checkpoint["state_dict"], strict=strict)
    for names, where in ((keys.missing_keys, "the module"), (keys.unexpected_keys, "the checkpoint")):
        if names:
            warnings.warn(f"only {where} has {', '.join(names)}", stacklevel=4)
    tensors = (value for value in checkpoint["state_dict"].values() if isinstance(value, torch.Tensor))
    first = next(tensors, None)
    return module if first is None else module.to(first.device)


def _arguments(cls: Any, checkpoint: dict[str, Any], given: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the arguments for the class, from the hyper-parameters and the given ones."""
    key = cls.CHECKPOINT_HYPER_PARAMS_KEY
    hyper_parameters = checkpoint.setdefault(key, {})
    if isinstance(hyper_parameters, NamedData | Unknown):
        refuse_placeholders(hyper_parameters, key, path, _ADVICE)
    hyper_parameters.update(given)
    saved = _of_type(_with_first(checkpoint, hyper_parameters), checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_TYPE))
    parameters = inspect.signature(cls.__init__).parameters
    name = checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_NAME)
    is_one = name in parameters
    arguments = {**({name: saved} if is_one else saved), **given}
    if arguments.pop(_INSTANTIATOR, None) is not None:
        _refuse_class_paths(arguments, given, path)
    arguments.pop(_CLASS_PATH, None)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        accepted = list(parameters)[1:]
        _refuse_unknown(cls, () if is_one else given.keys() - set(accepted))
        arguments = {name: value for name, value in arguments.items() if name in accepted}
    for name, value in arguments.items():
        refuse_placeholders(value, f"{key}.{name}", path, _ADVICE)
    return arguments


def _refuse_unknown(cls: type, names: Collection[str]) -> None:
    """Refuse arguments that the class does not have, as calling it does."""
    if names:
        raise TypeError(f"{cls.__qualname__} has no parameter {', '.join(map(repr, sorted(names)))}")


def _with_first(checkpoint: dict[str, Any], hyper_parameters: Any) -> Any:
    found = [checkpoint[key] for key in _FIRST_KEYS if isinstance(checkpoint.get(key), Mapping)]
    if not found:
        return hyper_parameters
    return {name: value for part in (*found, hyper_parameters) for name, value in part.items()}


def _of_type(hyper_parameters: Any, kind: Any) -> Any:
    """Return hyper-parameters in their original class; early versions stored only its name."""
    if isinstance(kind, str) and kind:
        kind = attribute_dict("")
    if not isinstance(kind, type) or isinstance(hyper_parameters, kind):
        return hyper_parameters
    return kind(hyper_parameters)


def _refuse_class_paths(arguments: Mapping[str, Any], given: Mapping[str, Any], path: str) -> None:
    """Refuse arguments of LightningCLI that name a class to import and call."""
    for name, value in arguments.items():
        if name not in given and _names_class(value, set()):
            raise UnsupportedError(
                f"the argument {name} names a class to import and call",
                path=path,
                hint=f"LightningCLI created an object of it: create it yourself, and pass {name}=",
            )


def _names_class(value: Any, seen: set[int]) -> bool:
    if id(value) in seen or not isinstance(value, Mapping | list | tuple):
        return False
    seen.add(id(value))
    if not isinstance(value, Mapping):
        return any(_names_class(item, seen) for item in value)
    return "class_path" in value or any(_names_class(item, seen) for item in value.values())
