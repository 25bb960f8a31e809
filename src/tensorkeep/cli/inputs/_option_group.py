"""Options that several commands share, grouped: a command takes a group as one value, and people type its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter
from typing import Any

import msgspec


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a command: each field is one, with its declaration and its default; or a group of them."""


def ungrouped(command: Callable[..., object]) -> Callable[..., object]:
    """Return a command whose parameters are single options, in place of each group; those that are required first."""
    signature = inspect.signature(command, eval_str=True)
    groups = {name: given.annotation for name, given in signature.parameters.items() if _is_group(given.annotation)}
    if not groups:
        return command
    single = [
        each
        for name, given in signature.parameters.items()
        for each in (_options_of(groups[name]) if name in groups else (given,))
    ]

    @wraps(command)
    def with_groups(**given: Any) -> object:
        values = {name: _made(group, given) for name, group in groups.items()}
        return command(**given, **values)

    single.sort(key=lambda each: each.default is not Parameter.empty)
    keyword_only = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in single]
    with_groups.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {each.name: each.annotation for each in keyword_only}
    return with_groups


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _options_of(group: type[OptionGroup]) -> Iterator[Parameter]:
    for field in msgspec.structs.fields(group):
        if _is_group(field.type):
            yield from _options_of(field.type)
            continue
        default = Parameter.empty if field.required else field.default
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


def _made(group: type[OptionGroup], given: dict[str, Any]) -> OptionGroup:
    """Take the values of a group's options."""
    fields = msgspec.structs.fields(group)
    return group(**{
        each.name: _made(each.type, given) if _is_group(each.type) else given.pop(each.name) for each in fields
    })
