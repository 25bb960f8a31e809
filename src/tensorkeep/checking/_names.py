"""Names of tensors: what wrappers and other programs make of them. Pure."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, Protocol

Shape = tuple[int, ...]


class Header(Protocol):
    """Dtype and shape of a tensor, as the entries of files have them."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> Shape: ...


class Expected(NamedTuple):
    """The shape that a tensor should have, and its dtype, which is empty where any will do."""

    dtype: str
    shape: Shape


Headers = Mapping[str, Header]

WRAPPERS: Final = {
    "module": "DistributedDataParallel or another wrapper of torch",
    "_orig_mod": "torch.compile",
    "_fsdp_wrapped_module": "FullyShardedDataParallel",
    "_checkpoint_wrapped_module": "activation checkpointing",
    "_forward_module": "Lightning's Fabric",
}
"""Modules that programs put around others, and who does."""

_wrapper: Final = re.compile(
    rf"(?:^(?=module\.)|(?:^|.*?\.)(?!module\.))({'|'.join(WRAPPERS)})(?=\.)", re.DOTALL
).match

_PREFIXES: Final = (*(f"{wrapper}." for wrapper in WRAPPERS), "model.")
"""What names begin with in some programs and not in others."""

_number: Final = re.compile(r"(?<![^.])\d+(?![^.])").sub

_OTHER_ENDINGS: Final = {
    "gamma": "weight",
    "beta": "bias",
    "kernel": "weight",
    "scale": "weight",
    "weights": "weight",
}
"""Last parts of names, and what torch calls the same."""

_OTHER_PARTS: Final = {
    "parametrizations.weight.original0": "weight_g",
    "parametrizations.weight.original1": "weight_v",
    "base_layer.": "",
    "lora_A.default.": "lora_A.",
    "lora_B.default.": "lora_B.",
}

OTHERWISE: Final = "they are spelled differently"

_N_TRIED: Final = 5
_N_SIMILAR: Final = 50
_N_COMPARED: Final = 20
_MAX_LENGTH: Final = 200
"""Missing names for which a similar one is searched, names compared with each, and their characters: `difflib` takes
up to half a millisecond for each."""


def mixed_prefixes(names: Collection[str]) -> list[str]:
    """Return the prefixes that some names have and others lack."""
    beginnings = {name.partition(".")[0] for name in names}
    return [prefix for prefix in _PREFIXES if prefix[:-1] in beginnings and len(beginnings) > 1]


def half_with(prefix: str, names: Collection[str]) -> list[str]:
    """Return the names with a prefix that counterparts in other layers lack: no model has both on purpose."""
    with_prefix = [name for name in names if name.startswith(prefix)]
    others = {_kind_of(name) for name in names if not name.startswith(prefix)}
    beginnings = {kind.partition(".")[0] for kind in others if "*" in kind}
    inner = (name.removeprefix(prefix) for name in with_prefix)
    alike = [name for name in inner if name.partition(".")[0] in beginnings and _kind_of(name) in others]
    alike = [name for name in alike if "*" in _kind_of(name)]
    return [] if any(name in names for name in alike) else [prefix + name for name in alike]


def _kind_of(name: str) -> str:
    """Return a name with `*` for each number of a layer."""
    return _number("*", name)


def wrapper_in(name: str) -> str | None:
    """Return the first part of a name that a wrapper has added; `module` only at the beginning."""
    found = _wrapper(name) if "module" in name or "_orig_mod" in name else None
    return found and found[1]


def unwrapped(name: str) -> str:
    """Return a name without the parts that wrappers have added."""
    parts = name.split(".")
    start = 1 if parts[0] == "module" and parts[1:] else 0
    return ".".join(part for part in parts[start:] if part == "module" or part not in WRAPPERS)


def plain(name: str) -> str:
    """Return a name as it would be without wrappers, in torch's terms, and without a leading `model.`."""
    name = unwrapped(name)
    for other, usual in _OTHER_PARTS.items():
        name = name.replace(other, usual)
    module, dot, last = name.rpartition(".")
    return (module + dot + _OTHER_ENDINGS.get(last, last)).removeprefix("model.")


class Renamed(NamedTuple):
    """A tensor under another name than it should have."""

    expected: str
    found: str


def renamed_pairs(missing: Headers, extra: Headers) -> Iterator[Renamed]:
    """Find the missing tensors among those under other names, the surest first; each is given once."""
    rest, others = dict(missing), dict(extra)

    def taken(pairs: Iterable[Renamed]) -> Iterator[Renamed]:
        for pair in pairs:
            if pair.expected in rest and pair.found in others and _fit(rest[pair.expected], others[pair.found]):
                del rest[pair.expected], others[pair.found]
                yield pair

    yield from taken(list(_same_when_plain(rest, others)))
    yield from taken(list(_with_a_prefix(rest, others)))
    yield from taken(Renamed(expected, found) for found, expected in list(_with_a_prefix(others, rest)))
    yield from taken(list(_similar(rest, others)))


def _fit(expected: Header, found: Header) -> bool:
    return expected.shape == found.shape


def _same_when_plain(missing: Headers, extra: Headers) -> Iterator[Renamed]:
    by_plain: dict[str, str] = {}
    for name in extra:
        by_plain.setdefault(plain(name), name)
    for name in missing:
        if (found := by_plain.get(plain(name))) is not None:
            yield Renamed(name, found)


def _with_a_prefix(shorter: Headers, longer: Headers) -> Iterator[Renamed]:
    """Find the prefix with which most of the shorter names are among the longer ones."""
    for name in islice(shorter, _N_TRIED):
        ending = f".{name}"
        for candidate in islice((other for other in longer if other.endswith(ending)), _N_TRIED):
            prefix = candidate.removesuffix(name)
            found = [other for other in shorter if prefix + other in longer]
            if 2 * len(found) > min(len(shorter), len(longer)):
                yield from (Renamed(other, prefix + other) for other in found)
                return


def _similar(missing: Headers, extra: Headers) -> Iterator[Renamed]:
    """Find similar names of tensors with the same shape and numbers."""
    alike: dict[tuple[Shape, tuple[str, ...]], list[str]] = {}
    for name, header in extra.items():
        if len(name) <= _MAX_LENGTH:
            alike.setdefault((header.shape, numbers_in(name)), []).append(name)
    for name, header in islice(missing.items(), _N_SIMILAR):
        others = alike.get((header.shape, numbers_in(name)), ()) if len(name) <= _MAX_LENGTH else ()
        near = difflib.get_close_matches(name, others[:_N_COMPARED], n=1, cutoff=0.8)
        yield from (Renamed(name, found) for found in near)


def numbers_in(name: str) -> tuple[str, ...]:
    """Return the numbers among the parts of a name."""
    return tuple(part for part in name.split(".") if part.isdigit())


def change_between(pair: Renamed) -> str:
    """Say in a few words what differs between two names."""
    expected, found = pair
    if found.endswith(expected):
        return f"`{found.removesuffix(expected):.100}` is in front of the names"
    if expected.endswith(found):
        return f"`{expected.removesuffix(found):.100}` is missing in front of the names"
    wrapper = wrapper_in(found)
    if wrapper is not None and wrapper_in(expected) is None:
        return f"`{wrapper}` of {WRAPPERS[wrapper]} is in the names"
    if expected.rpartition(".")[0] == found.rpartition(".")[0]:
        return f"`{expected.rpartition('.')[2]:.100}` is called `{found.rpartition('.')[2]:.100}`"
    return OTHERWISE


def prefix_to_strip(pairs: Iterable[Renamed]) -> str | None:
    """Return what `--strip-prefix` must remove so that all names are as expected; None if that does not suffice."""
    prefixes = Counter(
        found.removesuffix(expected) if found.endswith(expected) else None for expected, found in pairs
    )
    return next(iter(prefixes)) if len(prefixes) == 1 else None
