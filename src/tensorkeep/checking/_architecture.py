"""The tensors of a model of transformers, from its config: built on device meta, without data or code of others.

This is a program of its own, which `_reference` starts: with downloads off, and limits of memory and time.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from typing import Any, Final

_MAX_LAYERS: Final = 1_000
_MAX_EXPERTS: Final = 50_000
"""Layers that a config may ask for, and experts in all of them together: the largest models have 100 and 25,000."""

_MAX_NBYTES: Final = 16 * 2**30
"""Bytes of memory that this program may ask for; 5 GB suffice for the largest models."""

_NOT_FOR_BUILDING: Final = re.compile(
    r"auto_map|quantization_config|_name_or_path|.*attn_implementation.*|.*experts_implementation.*|.*kernel.*_config"
)
"""Keys of a config that name code or files of others, or another layout of the same tensors."""

_REFUSED_EVENTS: Final = frozenset({"pickle.find_class", "os.system", "os.exec", "socket.connect"})

_LAYERS: Final = re.compile(r".*(layers?|depth)s?")
_EXPERTS: Final = re.compile(r".*experts")


class RefusedConfigError(Exception):
    """A model cannot be built from this config; its text says why."""


def main() -> None:
    """Read a config as JSON from standard input, and write the tensors of its model to standard output."""
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (_MAX_NBYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    _refuse_code()
    request = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        try:
            answer = describe(request["config"], request["class"], is_divided=request.get("is_divided", False))
        except RefusedConfigError as error:
            answer = {"refused": str(error)}
        except Exception as error:  # noqa: BLE001 - whatever a library raises for a config that it does not like
            answer = {"refused": f"{type(error).__name__}: {error}"[:2000]}
    sys.stdout.write(json.dumps(answer))


def _refuse_code() -> None:
    """Let nothing that a config names be run: some models load files by arguments in it, timm even pickles."""
    sys.modules["timm"] = None  # type: ignore[assignment] # transformers then says that such models need it
    sys.addaudithook(_refuse_event)


def _refuse_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Stop what no model that is built on device meta needs: classes of pickles, commands, connections."""
    if event in _REFUSED_EVENTS:
        raise RefusedConfigError(f"building its model would run something: {event} {arguments!r:.200}")


def describe(config: Mapping[str, Any], class_name: str | None, *, is_divided: bool = False) -> dict[str, Any]:
    """Return names and shapes of a model's tensors, and which others a checkpoint may lack or add.

    With `is_divided`, also how the model's own plan divides them among ranks.
    """
    import torch
    import transformers

    cls = _model_class(transformers, config, class_name)
    made = cls.config_class.from_dict(_for_building(config))
    _refuse_large(made.to_dict())
    with torch.device("meta"):
        model = cls(made)
    state = model.state_dict(keep_vars=True)
    forms = [state] if (saved := _as_saved(model, state)) is None else [saved, state]
    return {
        "model": cls.__name__,
        "forms": [described(form) for form in forms],
        "may_lack": _patterns(model, "_keys_to_ignore_on_load_missing"),
        "may_add": _patterns(model, "_keys_to_ignore_on_load_unexpected"),
        "prefix": cls.base_model_prefix,
        "divided": _divided(model, state) if is_divided else {},
    }


def _model_class(transformers: Any, config: Mapping[str, Any], class_name: str | None) -> Any:
    named = config.get("architectures")
    names: list[Any] = [class_name] if class_name else named if isinstance(named, list) else []
    for name in names:
        found: Any = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
        if is_model and getattr(found, "config_class", None) is not None:
            return found
    if names:
        code = ", and the code that the config names is not run (auto_map)" if "auto_map" in config else ""
        raise RefusedConfigError(
            f"transformers {transformers.__version__} has no model class {str(names[0])[:100]!r}{code}"
        )
    kind = config["model_type"]
    if kind not in transformers.CONFIG_MAPPING:
        raise RefusedConfigError(f"transformers {transformers.__version__} knows no model_type {kind[:100]!r}")
    return transformers.MODEL_MAPPING[transformers.CONFIG_MAPPING[kind]]


def _for_building(value: Any, key: str = "") -> Any:
    """Return a config without the keys that must not decide what is built, at any depth."""
    if isinstance(value, dict):
        return {
            each: _for_building(inner, each) for each, inner in value.items() if not _NOT_FOR_BUILDING.fullmatch(each)
        }
    if isinstance(value, list):
        return [_for_building(inner, key) for inner in value]
    if key == "use_pretrained_backbone":
        return False
    return value


def _refuse_large(config: Mapping[str, Any]) -> None:
    """Refuse sizes that would take long to build; for other configs, the limits of this program suffice."""
    n_layers = max(_numbers(config, _LAYERS), default=1)
    n_experts = max(_numbers(config, _EXPERTS), default=1)
    if n_layers > _MAX_LAYERS or n_layers * n_experts > _MAX_EXPERTS:
        raise RefusedConfigError(
            f"it asks for {n_layers} layers of {n_experts} experts; at most {_MAX_LAYERS:,} layers with"
            f" {_MAX_EXPERTS:,} experts in all are built"
        )


def _numbers(value: Any, pattern: re.Pattern[str], key: str = "") -> Iterator[int]:
    """Yield the numbers under keys of a pattern, at any depth."""
    if isinstance(value, dict):
        for each, inner in value.items():
            yield from _numbers(inner, pattern, each)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner, pattern, key)
    elif isinstance(value, int) and pattern.fullmatch(key):
        yield value


def _as_saved(model: Any, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the tensors as transformers 5 saves them, under other names and shapes; None for an older version."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        return None
    reverted: Mapping[str, Any] = revert_weight_conversion(model, state)
    return reverted


def _divided(model: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each divided tensor, as it is saved, the dimension and how many matrices lie along it.

    Which dimension of a saved tensor is divided is found out with shapes: the divided dimension of each parameter is
    made twice as long, and transformers says what would be saved of that.
    """
    from transformers.integrations.tensor_parallel import replace_layer_number_by_wildcard

    plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or {}
    longer: dict[str, Any] = dict(state)
    blocks: dict[str, int] = {}
    for name, tensor in state.items():
        pattern = replace_layer_number_by_wildcard(name)
        style = plan.get(pattern) or plan.get(pattern.rpartition(".")[0]) or ""
        dim = _divided_dim(style, tensor.ndim, name) if hasattr(tensor, "ndim") else None
        if dim is not None:
            shape = [extent * (1 + (axis == dim)) for axis, extent in enumerate(tensor.shape)]
            longer[name] = tensor.new_empty(shape)
            blocks[name] = 2 if style.startswith("packed_") else 1
    saved, saved_longer = (_as_saved(model, form) or form for form in (state, longer))
    divided: dict[str, Any] = {}
    for name, tensor in saved.items():
        other = saved_longer.get(name)
        pairs = () if other is None else enumerate(zip(tensor.shape, other.shape, strict=True))
        changed = [axis for axis, (extent, longer_extent) in pairs if extent != longer_extent]
        if len(changed) == 1:
            divided[name] = {"dim": changed[0], "ndim": tensor.ndim, "n_blocks": blocks.get(name, 1)}
    return divided


def _divided_dim(style: str, ndim: int, name: str) -> int | None:
    """Return the dimension that a style of transformers divides; None for one that leaves tensors whole."""
    if ndim == 0:
        return None
    if style in {"embedding_rowwise", "grouped_gemm"}:
        return 0
    if "colwise" in style and style != "embedding_colwise":
        return max(ndim - 2, 0)
    if "rowwise" in style or style == "embedding_colwise":
        return None if ndim == 1 or name.endswith(".bias") else ndim - 1
    return None


def described(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shapes of a state dict, and which of its names are one tensor."""
    tensors = {name: tensor for name, tensor in state.items() if hasattr(tensor, "shape")}
    same: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        same.setdefault(id(tensor), []).append(name)
    return {
        "tensors": {name: list(tensor.shape) for name, tensor in tensors.items()},
        "tied": [names for names in same.values() if len(names) > 1],
    }


def _patterns(model: Any, attribute: str) -> list[str]:
    found = getattr(model, attribute, None) or ()
    return [pattern for pattern in found if isinstance(pattern, str)]


def clean_environment() -> dict[str, str]:
    """Return the environment of the program: nothing is downloaded, and no telemetry is sent."""
    return os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "USE_HUB_KERNELS": "0",
        "CUDA_VISIBLE_DEVICES": "",
    }
