"""A model's own plan: how transformers divides its tensors, as the `config.json` beside a checkpoint implies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorkeep.checking import Divided, ModelDivision, division_by_library
from tensorkeep.errors import RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.tensor_parallel._plan import RuleOf
from tensorkeep.tensor_parallel._rules import WHOLE, Axis, Rule
from tensorkeep.texts import listed
from tensorkeep.transport import is_directory, join, split

_HINT: Final = "Say how tensors are divided: plan={'*.q_proj': 'colwise', …} (--plan)"


def model_plan(path: str | None, shapes: Mapping[str, tuple[int, ...]]) -> RuleOf:
    """Return the rules for the checkpoint at a path, whose tensors have these shapes once they are dequantized."""
    if path is None:
        raise _unknown_model(None)
    config = join(path if is_directory(path) else split(path)[0], "config.json")
    try:
        division = division_by_library(config)
    except SourceMissingError:
        raise _unknown_model(path) from None
    if not division.tensors:
        raise UnsupportedError(
            f"transformers has no plan for dividing the tensors of {division.model}", path=config, hint=_HINT
        )
    names = _names_in(shapes, division)
    _refuse_missing(names, shapes, division, config)
    rules = {
        names[name]: _rule_of(names[name], divided, division, shapes) for name, divided in division.tensors.items()
    }
    return lambda name: rules.get(name, WHOLE)


def _unknown_model(path: str | None) -> SourceMissingError:
    message = "the model is unknown: there is no config.json beside the checkpoint"
    return SourceMissingError(message, path=path, hint=_HINT)


def _names_in(shapes: Mapping[str, tuple[int, ...]], division: ModelDivision) -> dict[str, str]:
    """Return what the checkpoint calls each tensor: one saved without the model's head lacks a prefix."""
    prefix = f"{division.prefix}."
    strips = not any(name.startswith(prefix) for name in shapes)
    return {name: name.removeprefix(prefix) if strips else name for name in division.tensors}


def _refuse_missing(
    names: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], division: ModelDivision, config: str
) -> None:
    """Refuse a checkpoint that lacks what the plan divides, for it may have the same under other names."""
    tied = {name: group for group in division.tied for name in group}
    missing = [
        own
        for name, own in names.items()
        if own not in shapes and not any(names.get(other, other) in shapes for other in tied.get(name, ()))
    ]
    without_head = [name for name in missing if name.startswith("lm_head.")] if len(missing) == 1 else []
    if missing and missing != without_head:
        raise RefusedError(
            f"the plan of {division.model} divides {len(missing):,} tensors that the checkpoint does not have",
            path=config,
            tensor=missing[0],
            found=listed(f"`{name}`" for name in missing),
            hint=f"tensorkeep check --against config.json says what is missing or misnamed. {_HINT}",
        )


def _rule_of(name: str, divided: Divided, division: ModelDivision, shapes: Mapping[str, tuple[int, ...]]) -> Rule:
    axis: Axis = "columns" if divided.ndim > 1 and divided.dim == divided.ndim - 1 else "rows"
    if divided.ndim > 2 and divided.dim == 0:
        axis = "first"
    plain = Rule(axis, divided.n_blocks)
    module, _, part = name.rpartition(".")
    parent, _, leaf = module.rpartition(".")
    n_heads = division.settings.number("num_attention_heads") or 0
    n_kv_heads = division.settings.number("num_key_value_heads") or n_heads
    queries = shapes.get(f"{parent}.q_proj.weight")
    if not n_heads or queries is None or queries[0] % n_heads or name not in shapes or part not in {"weight", "bias"}:
        return plain
    own = shapes[name]
    width = queries[0] // n_heads
    if leaf in {"k_proj", "v_proj"} and axis == "rows" and own[0] == n_kv_heads * width:
        return Rule("rows", 1, (n_kv_heads,), repeats=True)
    if leaf == "q_proj" and axis == "rows":
        return Rule("rows", 1, (n_heads,))
    if leaf == "o_proj" and axis == "columns" and own[-1] == n_heads * width:
        return Rule("columns", 1, (n_heads,))
    return plain
