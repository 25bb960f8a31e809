"""The state of a run of any library whose objects hold variables: taken from its objects, and loaded into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from tensorkeep.errors import StateError
from tensorkeep.runs._actions import Action, apply
from tensorkeep.runs._generators import (
    HOST_GENERATORS,
    capture_host_generator,
    capture_host_rng,
    prepare_host_generator,
    prepare_rng,
)
from tensorkeep.runs._parts import load_parts
from tensorkeep.runs._placeholders import refuse_placeholders
from tensorkeep.runs._several import pairs
from tensorkeep.state import Classes
from tensorkeep.transport import Openable


class Stateful(Protocol):
    """An object of a run, seen as what it holds."""

    def state(self) -> Any:
        """Return what it holds, as nested data."""

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
        """Check that a state fits, and yield the actions that load it."""


class RunLibrary(Protocol):
    """What `capture` and `restore` need to know of a library.

    Attributes:
        framework: The array library of its tensors.
        expected: What its objects are, for messages.
    """

    framework: str
    expected: str

    def find(self, value: Any) -> Stateful | None:
        """Return an object as what it holds; None if it is not one of the library's."""

    def capture_rng(self) -> dict[str, Any]:
        """Return the states of the library's global random generators by name."""

    def rng_actions(self) -> Mapping[str, Callable[[Any], Action]]:
        """Return for each name the function that makes the action that sets the generator."""


def capture_run(
    library: RunLibrary, objects: Mapping[str, Any], extra: Mapping[str, Any], *, rng: bool
) -> dict[str, Any]:
    """Return the states of objects by part, of the global random generators, and extra data."""
    state = {part: _state_of(library, value, part) for part, value in objects.items() if value is not None}
    if rng:
        state["rng"] = capture_host_rng() | library.capture_rng()
    return state | {name: _state_of_extra(library, value) for name, value in extra.items()}


def restore_run(
    library: RunLibrary,
    source: Openable | Mapping[str, Any],
    objects: Mapping[str, Any],
    extra: Mapping[str, Any],
    *,
    rng: bool,
    strict: bool,
    classes: Classes,
) -> dict[str, Any]:
    """Load what `capture_run` returned into the objects of a run; return the extra data that has no object."""
    targets = {part: target for part, target in objects.items() if target is not None} | dict(extra)
    wanted = [*targets, "rng"] if rng else [*targets]
    parts, rest = load_parts(source, wanted, classes, framework="numpy", others_on=(library.framework, "cpu"))
    actions: list[tuple[str, Action]] = []
    for part, target in targets.items():
        refuse_placeholders(parts[part], part)
        actions += [(part, action) for action in _prepare(library, target, parts[part], part, strict=strict)]
    if rng:  # last, since loading an object may draw random numbers
        actions += [("rng", action) for action in prepare_rng(parts["rng"], "rng", library.rng_actions())]
    apply(actions)
    return rest


def _state_of(library: RunLibrary, value: Any, path: str) -> Any:
    found = library.find(value)
    if found is not None:
        return found.state()
    if isinstance(value, HOST_GENERATORS):
        return capture_host_generator(value)
    if isinstance(value, Mapping):
        return {key: _state_of(library, item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_state_of(library, item, f"{path}.{place}") for place, item in enumerate(value)]
    raise StateError(
        f"{path!r} has no state to capture",
        expected=f"{library.expected}, or a dict or list of such",
        found=f"{type(value).__module__}.{type(value).__qualname__}",
    )


def _state_of_extra(library: RunLibrary, value: Any) -> Any:
    return _state_of(library, value, "") if _is_of_objects(library, value) else value


def _is_of_objects(library: RunLibrary, value: Any) -> bool:
    """Whether a value is an object with a state, or holds several of them and nothing else."""
    if isinstance(value, HOST_GENERATORS) or library.find(value) is not None:
        return True
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return bool(items) and all(_is_of_objects(library, item) for item in items)


def _prepare(library: RunLibrary, target: Any, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:
    found = library.find(target)
    if found is not None:
        yield from found.prepare(saved, part, strict=strict)
    elif isinstance(target, HOST_GENERATORS):
        yield prepare_host_generator(target, saved, part)
    elif isinstance(target, Mapping | list | tuple):
        for item, state, place in pairs(target, saved, part):
            yield from _prepare(library, item, state, place, strict=strict)
    else:
        raise StateError(
            f"cannot load a state into {part}",
            expected=f"{library.expected}, a random generator, or a dict or list of such",
            found=f"{type(target).__module__}.{type(target).__qualname__}",
            hint="restore returns data by itself: leave out the argument",
        )
