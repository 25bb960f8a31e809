"""Commands that take the place of their result after `-o` or as the last argument, whichever they declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, Final

import typer

from tensorkeep.cli.help import PlainCommand

_OPTION: Final = "output"
_RESULTS: Final = frozenset(("destination", "directory", "target"))
"""Names of last arguments that are the place of the result."""

_Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="PATH", help="Where the result goes, in place of the last argument.", hidden=True
    ),
]


def with_output(command: Callable[..., object]) -> Callable[..., object]:
    """Return a command with the option `-o` if its last argument is the place of the result."""
    signature = inspect.signature(command, eval_str=True)
    positional = [each.name for each in signature.parameters.values() if each.kind is not Parameter.KEYWORD_ONLY]
    if len(positional) < 2 or positional[-1] not in _RESULTS:
        return command

    @wraps(command)
    def without_output(**given: Any) -> object:
        given.pop(_OPTION)  # its value is the last argument by now
        return command(**given)

    output = Parameter(_OPTION, Parameter.KEYWORD_ONLY, default=None, annotation=_Output)
    new = signature.replace(parameters=[*signature.parameters.values(), output])
    without_output.__signature__ = new  # type: ignore[attr-defined]
    without_output.__annotations__ = {name: each.annotation for name, each in new.parameters.items()}
    return without_output


class WritingCommand(PlainCommand):
    """A command, which may write something."""

    def make_parser(self, ctx: Any) -> Any:
        """Return a parser that puts the place of the result where the function has it."""
        parser = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
            given, rest, order = parse(args=args)
            return given, self._place_result(given, rest), order

        parser.parse_args = parse_args  # type: ignore[method-assign]
        return parser

    def _place_result(self, given: dict[str, Any], rest: list[str]) -> list[str]:
        """Change what was given, and return the arguments that are too many."""
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        many = next((each.name for each in arguments if each.nargs < 0), None)
        if len(arguments) > 1 and (name := arguments[-1].name) in _RESULTS:
            return _from_option(given, rest, name, many)
        needs_option = any(each.name == _OPTION and each.required for each in self.params)
        if needs_option and many is None and _OPTION not in given and len(rest) == 1:
            given[_OPTION] = rest[0]  # with any number of sources, the last one would be written to by mistake
            return []
        return rest


def _from_option(given: dict[str, Any], rest: list[str], name: str, many: str | None) -> list[str]:
    """Take the result from `-o`; then the argument in its place is a source."""
    output = given.pop(_OPTION, None)
    if output is None:
        if many is not None and not given.get(many) and given.get(name):
            # The parser gives a lone argument to the last
            given[many], given[name] = (given[name],), None
        return rest
    last, given[name] = given[name], output
    if not isinstance(last, str):
        return rest
    if many is None:
        return [last, *rest]
    before = given[many]
    given[many] = (*(before if isinstance(before, tuple) else ()), last)
    return rest
