"""What the pickles of one file share: the meaning of names, storages, and a record of everything they asked for.

Every opcode that would import, call or build something ends up here, and only here is decided what happens instead:

- `find`     a name of the closed table gives a `Name` or a label; any other name an inert `Unknown`
- `call`     a `Name` is replaced by our own function for it; calling anything else gives an `Unknown` with arguments
- `build`    state is recorded on our own records, and never applied to an object
- `persistent` gives the description of a storage

No path imports a module, looks up an attribute, or calls an object by what the file says.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from typing import Any, Literal

import msgspec

from tensorkeep.errors import LimitError, PickleError, TensorkeepError, UnsafeError
from tensorkeep.formats.pickles.limits import DEFAULT_LIMITS, DICTS, Allowance, KeyGuard, PickleLimits
from tensorkeep.formats.pickles.machine._eval_calls import EVAL_NAME, EvalCalls
from tensorkeep.formats.pickles.names import (
    EMPTY_WHEN_NEW,
    FUNCTIONS,
    HASHING,
    Danger,
    danger_of,
    danger_of_call,
    known_name,
    paddle_array,
    python3_name,
    set_array_state,
    set_dtype_state,
    storage_of,
)
from tensorkeep.formats.pickles.values import (
    ArrayRecord,
    DtypeRecord,
    Name,
    Namespace,
    Payload,
    StorageRecord,
    Unknown,
    short_repr,
)
from tensorkeep.limits import MAX_NAME_LENGTH

Action = Literal["import", "call", "build", "extension"]
Dangerous = Literal["refuse", "record"]
"""What to do about names that could only do harm: refuse the file, or keep them as inert records."""

_ELEMENTS = frozenset((bytes, Payload))

_PYTHON_3 = 3
"""The first protocol that uses names of Python 3."""


class Event(msgspec.Struct, frozen=True, eq=False):
    """One thing that a pickle asks for beyond plain data.

    Attributes:
        action: `"import"`: names a class or function; `"call"`: calls an unknown one; `"build"`: sets state on the
            result of that; `"extension"`: looks up a class in a registry.
        position: Position of the opcode in the data.
        module: Module of the name.
        name: The name.
        is_known: Whether it is in the closed table.
        value: The record that the call gave or that is being built, with its arguments; None for an import.
    """

    action: Action
    position: int
    module: str
    name: str
    is_known: bool
    value: Unknown | None = None


class Context:
    """What the pickles of one file share.

    Attributes:
        storages: Every storage that was mentioned, by key.
        events: What was asked for, in order; None if that is not recorded.
        keys: Checks keys before they are hashed.
        allowance: Memory left for copies.
        read_embedded: Reads a storage that was pickled alone: torch writes a whole file for it, as bytes within the
            pickle. If None, such a storage is an `Unknown` like any other.
        embedded: Key to the bytes of each such storage.
        persistent_load: Returns what a persistent id stands for; if None, the storage that torch's ids describe.
        dangers: Names that could only do harm, with the reason; also those that are not part of the value.
        places: Id of each value of bytes to the value, which so keeps its id, and to its place in the file; None if
            these are not noted.
        evals: Uses of `eval` in the pickle that is being run, which are judged at its end.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        dangerous: Dangerous = "refuse",
        limits: PickleLimits = DEFAULT_LIMITS,
        persistent_load: Callable[[Any], Any] | None = None,
        keeps_events: bool = False,
    ) -> None:
        self.storages: dict[str, StorageRecord] = {}
        self.events: list[Event] | None = [] if keeps_events else None
        self.limits = limits
        self.keys = KeyGuard(limits.max_number_keys)
        self.allowance = Allowance()
        self._strict = strict
        self._dangerous = dangerous
        self.persistent_load = persistent_load
        self.read_embedded: Callable[[bytes], tuple[StorageRecord, bytes]] | None = None
        self.embedded: dict[str, bytes] = {}
        self.dangers: dict[str, str] = {}
        self.places: dict[int, tuple[bytes, int]] | None = None
        self.evals: EvalCalls | None = None
        self._found: dict[tuple[str, str, bool], Any] = {}

    def find(self, module: str, name: str, protocol: int, position: int) -> Any:
        """Return what stands for a name: a `Name` or label of the closed table, or an `Unknown` reference."""
        if len(module) > MAX_NAME_LENGTH or len(name) > MAX_NAME_LENGTH:
            raise LimitError("a name is too long", expected=f"at most {MAX_NAME_LENGTH:,} characters")
        place = (module, name, protocol < _PYTHON_3)
        found = self._find_eval(*place) or self._found.get(place)
        if found is None:
            found = self._found[place] = self._resolve(module, name, protocol)
        if self.events is not None:
            new = python3_name(module, name) if protocol < _PYTHON_3 else (module, name)
            self.events.append(Event("import", position, *new, type(found) is not Unknown))
        return found

    def _find_eval(self, module: str, name: str, is_old: bool) -> Unknown | None:
        """Return the record of `eval`; None for any other name, and outside a pickle."""
        if self.evals is None or (python3_name(module, name) if is_old else (module, name)) != EVAL_NAME:
            return None
        self.evals.n_named += 1
        return self.evals.function

    def judge_evals(
        self, data: bytes, start: int, stop: int, memo: Mapping[int, Any], left_out: Container[int] = ()
    ) -> None:
        """Refuse a finished pickle that does more with `eval` than look up an array."""
        evals, self.evals = self.evals, None
        if evals is None or not evals.n_named:
            return
        if self.mentions("torch") or not evals.are_data(data, start, stop, memo, left_out):
            self._refuse_danger(danger_of(*EVAL_NAME), evals.function.qualified_name)
            self._refuse_unknown(*EVAL_NAME)
        elif self.events is not None:
            self.events[:] = [
                msgspec.structs.replace(event, is_known=True)
                if (event.module, event.name) == EVAL_NAME and event.position >= start
                else event
                for event in self.events
            ]

    def _resolve(self, module: str, name: str, protocol: int) -> Any:
        if protocol < _PYTHON_3:
            module, name = python3_name(module, name)
        known = known_name(module, name)
        if known is not None:
            return known
        self._refuse_danger(danger_of(module, name), f"{module}.{name}")
        self._refuse_unknown(module, name)
        return Unknown(module, name)

    def _refuse_danger(self, danger: Danger | None, name: str) -> None:
        if danger is None or not danger.is_certain:
            return
        self.dangers[name] = danger.reason
        if self._dangerous == "refuse":
            raise UnsafeError(
                f"the pickle names {name}, which {danger.reason}",
                found=name,
                hint="Nothing was run. `tensorkeep scan` lists everything it asks for; `tensorkeep convert "
                "--drop-unknown` extracts the tensors",
            )

    def _refuse_unknown(self, module: str, name: str) -> None:
        if self._strict:
            raise UnsafeError(
                f"the pickle names {module}.{name}, which is not known to be data",
                expected="only tensors and plain data (strict=True)",
                found=f"{module}.{name}",
                hint="Nothing was run",
            )

    def call(self, function: Any, args: Any, position: int) -> Any:
        """Return the result of a call: of our own function for a known name, else an `Unknown`."""
        if type(args) is not tuple:
            raise PickleError("the arguments of a call are not a tuple", found=type(args).__name__)
        if type(function) is Name and function.call is not None:
            try:
                if function.is_cheap or not args:
                    return function.call(*args)
                result = self._call_known(function.call, args)
            except TensorkeepError:
                raise
            except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
                raise PickleError(f"wrong arguments for {function.qualified_name}", found=str(error)) from None
            if type(result) is Unknown:  # the name is known, but not with these arguments
                self._note("call", position, result)
                self._refuse_unknown(result.module, result.name)
            return result
        if type(function) is Name and self.read_embedded and _is_embedded(function, args):
            return self._embed(*self.read_embedded(args[0]))
        return self._call_unknown(function, args, position)

    def _call_unknown(self, function: Any, args: tuple[Any, ...], position: int) -> Any:
        """Return an `Unknown` in place of the result, or the array that Paddle writes as a call of `eval`."""
        if not isinstance(function, Unknown):
            raise PickleError("something that is not a name is called", found=short_repr(function))
        if self.evals is not None and function is self.evals.function:
            array = self.evals.answer(args)
            if array is not None:
                return paddle_array(array)
        self._refuse_danger(danger_of_call(function.module, function.name, args), function.qualified_name)
        self._refuse_unknown(function.module, function.name)
        if not function.is_reference:  # the unknown result of a call is called in turn
            args = (function, *args)
        result = Unknown(function.module, function.name, args)
        self._note("call", position, result)
        return result

    def _embed(self, storage: StorageRecord, data: bytes) -> StorageRecord:
        self.allowance.spend(len(data))
        key = f"embedded {len(self.embedded)}"
        self.embedded[key] = data
        self.storages[key] = msgspec.structs.replace(storage, key=key)
        return self.storages[key]

    def _call_known(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self.allowance.spend_on(args)
        if call in HASHING:
            keys = HASHING[call](args[0])
            self.keys.check(keys, keys)
        return call(*args)

    def construct(self, cls: Any, args: Any, named: Any, position: int) -> Any:
        """Return what stands for `cls.__new__(cls, *args)`, which differs from a call of the class."""
        if type(named) is not dict or type(args) is not tuple:
            raise PickleError(
                "the arguments of a new object are not a tuple and a dict",
                found=f"{short_repr(args)}, {short_repr(named)}",
            )
        if type(cls) is Name and cls.call is not None:
            if named or (args and cls.call in EMPTY_WHEN_NEW) or cls.call in FUNCTIONS or "_rebuild" in cls.name:
                raise PickleError(f"a new {cls.qualified_name} does not take these arguments", found=short_repr(args))
        elif named or (self.evals is not None and cls is self.evals.function):  # a function has no `__new__`
            args = (*args, named)
        return self.call(cls, args, position)

    def build(self, target: Any, state: Any, position: int) -> None:
        """Record the state that an object would have been given."""
        kind = type(target)
        if kind is ArrayRecord and type(state) is tuple and len(state) == 5 and type(state[4]) in _ELEMENTS:
            self.allowance.spend(len(state[4]))
        else:
            self.allowance.spend_on((state,))
        if kind is ArrayRecord:
            set_array_state(target, state)
            if target.holds_objects:
                self._refuse_unknown("numpy", "ndarray of Python objects")
        elif kind is DtypeRecord:
            set_dtype_state(target, state)
        elif kind is Namespace:
            self._fill(target, state)
        elif kind is OrderedDict:
            _set_metadata(target, state)
        elif kind is Unknown and not target.is_reference and target.state is None:
            object.__setattr__(target, "state", state)
            self._note("build", position, target)
        else:
            raise PickleError("state is set on something that cannot have any", found=kind.__name__)

    def _fill(self, target: Namespace, state: Any) -> None:
        if type(state) not in DICTS or any(type(key) is not str for key in state) or target:
            raise PickleError(
                "the attributes of a namespace are not a dict with text keys", found=type(state).__name__
            )
        target.update(state)

    def mentions(self, package: str) -> bool:
        """Say whether a name of a package was mentioned."""
        return any(module.partition(".")[0] == package for module, _, _ in self._found)

    @property
    def stored(self) -> dict[str, StorageRecord]:
        """The storages whose bytes are outside the pickle; a new dict."""
        return {key: storage for key, storage in self.storages.items() if key not in self.embedded}

    def mark(self) -> tuple[int, int, int]:
        """Return a mark to rewind to if the pickle must be run again from its start."""
        return len(self.storages), len(self.embedded), len(self.events or ())

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Forget everything recorded since a mark."""
        while len(self.storages) > mark[0]:
            self.storages.popitem()
        while len(self.embedded) > mark[1]:
            self.embedded.popitem()
        if self.events is not None:
            del self.events[mark[2] :]

    def persistent(self, pid: Any) -> Any:
        """Return what a persistent id stands for."""
        return self._load_storage(pid) if self.persistent_load is None else self.persistent_load(pid)

    def _load_storage(self, pid: Any) -> Any:
        if type(pid) is tuple and len(pid) == 4 and pid[0] == "module":
            return pid[1]
        storage = storage_of(pid)
        record = storage if isinstance(storage, StorageRecord) else storage.storage
        known = self.storages.get(record.key)
        if known is None:
            self.storages[record.key] = record
        elif known != record and (known.n_elements or record.n_elements):
            raise PickleError("two descriptions of one storage differ", expected=str(known), found=str(record))
        return storage

    def _note(self, action: Action, position: int, value: Unknown) -> None:
        if self.events is not None:
            self.events.append(Event(action, position, value.module, value.name, is_known=False, value=value))


def _is_embedded(function: Name, args: tuple[Any, ...]) -> bool:
    return function.name == "_load_from_bytes" and len(args) == 1 and type(args[0]) is bytes


def _set_metadata(target: OrderedDict[Any, Any], state: Any) -> None:
    """Keep the version metadata of `Module.state_dict`, and no other attribute."""
    if type(state) is not dict or set(state) - {"_metadata"}:
        raise PickleError("an OrderedDict has attributes", expected="_metadata", found=short_repr(state))
    if "_metadata" in state:
        target._metadata = state["_metadata"]  # type: ignore[attr-defined]
