"""A checkpoint compared with the tensors that a model, or another checkpoint, has. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Final

import msgspec

from tensorkeep.checking._findings import CheckFinding, Severity, finding_about
from tensorkeep.checking._names import OTHERWISE, Headers, Renamed, change_between, prefix_to_strip, renamed_pairs
from tensorkeep.texts import counted, shape_text, share_text

AreEqual = Callable[[str, str], bool | None]
"""Says whether two stored tensors are equal; None if that is not known without reading them."""

_LEFTOVERS: Final = re.compile(
    r".*(\.inv_freq|position_ids|\.masked_bias|\.attn\.bias|\.attention\.bias|num_batches_tracked)"
)
"""Buffers that programs compute: old checkpoints have them, and any may lack them."""

_MAX_CHANGES: Final = 20
"""Ways of misnaming that are reported separately."""

_KNOWN_ENDINGS: Final = ("gamma", "beta", "weight_g", "weight_v", "original0", "original1")
"""Endings of old names, which transformers renames when it loads."""


class Form(msgspec.Struct, frozen=True):
    """The tensors that are expected, in one form in which they may be saved.

    Attributes:
        headers: Name to header; its dtype is empty where any will do.
        tied: Names of one tensor: one of them is enough.
    """

    headers: Headers
    tied: Sequence[Sequence[str]] = ()


class Reference(msgspec.Struct, frozen=True):
    """What a checkpoint is compared with.

    Attributes:
        name: For people.
        forms: The forms that fit; the one with the most names in common counts.
        may_lack: Patterns of names that may be missing.
        may_add: Patterns of names that may be there too.
        prefix: What names begin with in a model with a head, and not in the same one without it.
        seconds: How long it took to build a model, or 0.
        is_library: Whether a library loads the checkpoint that knows old names.
    """

    name: str
    forms: Sequence[Form]
    may_lack: Sequence[re.Pattern[str]] = ()
    may_add: Sequence[re.Pattern[str]] = ()
    prefix: str = ""
    seconds: float = 0.0
    is_library: bool = False


class Fit(msgspec.Struct, frozen=True):
    """How much of a checkpoint a model takes, and how much of the model it fills, in elements.

    Attributes:
        n_stored: Elements in the checkpoint.
        n_used: Those that the model takes.
        n_expected: Elements of the model; tied ones count once.
        n_filled: Those that the checkpoint has.
    """

    n_stored: int
    n_used: int
    n_expected: int
    n_filled: int

    @property
    def share(self) -> float:
        """The smaller of both shares, from 0 to 1."""
        used = self.n_used / self.n_stored if self.n_stored else 1.0
        return min(used, self.n_filled / self.n_expected if self.n_expected else 1.0)

    def __str__(self) -> str:
        used, filled = share_text(self.n_used, self.n_stored), share_text(self.n_filled, self.n_expected)
        return f"{used or 'nothing'} of the checkpoint is used, {filled or 'nothing'} of the model is filled"


def compare(stored: Headers, reference: Reference, are_equal: AreEqual) -> tuple[list[CheckFinding], Fit]:
    """Compare a checkpoint with what is expected."""
    form = max(_variants(reference), key=lambda form: len(form.headers.keys() & stored.keys()))
    tied = {name: group for group in form.tied for name in group}
    missing = {name: header for name, header in form.headers.items() if name not in stored}
    lacked = {
        name: header
        for name, header in missing.items()
        if not any(other in stored for other in tied.get(name, ())) and not _is_any(name, reference.may_lack)
    }
    extra = {
        name: header
        for name, header in stored.items()
        if name not in form.headers and not _is_any(name, reference.may_add)
    }
    pairs = list(renamed_pairs(lacked, extra))
    taken = {pair.found for pair in pairs}
    given = {other for pair in pairs for other in tied.get(pair.expected, (pair.expected,))}
    misfits = {
        name: (header.shape, stored[name].shape)
        for name, header in form.headers.items()
        if name in stored and header.shape != stored[name].shape
    }
    findings = [
        *_misnamed(pairs, reference),
        *_absent([name for name in lacked if name not in given], reference),
        *_unexpected([name for name in extra if name not in taken], reference),
        *_of_other_shapes(misfits, reference),
        *_of_other_dtypes(stored, form.headers, reference),
        *_untied(stored, form.tied, are_equal, reference),
    ]
    return findings, _fit_of(stored, form, misfits, tied, reference)


def _variants(reference: Reference) -> Iterator[Form]:
    """Give each form as it is, and as it is saved by the same model with or without a head."""
    yield from reference.forms
    start = f"{reference.prefix}."
    for form in reference.forms if reference.prefix else ():
        names = {name: name.removeprefix(start) for name in form.headers}
        if len(set(names.values())) == len(names):
            yield _renamed(form, names)
        yield _renamed(form, {name: start + name for name in form.headers})


def _renamed(form: Form, names: Mapping[str, str]) -> Form:
    headers = {names[name]: header for name, header in form.headers.items()}
    return Form(headers, [[names[name] for name in group] for group in form.tied])


def _is_any(name: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return _LEFTOVERS.fullmatch(name) is not None or any(pattern.search(name) for pattern in patterns)


def _fit_of(
    stored: Headers,
    form: Form,
    misfits: Mapping[str, object],
    tied: Mapping[str, Sequence[str]],
    reference: Reference,
) -> Fit:
    used = {name for name in form.headers if name in stored and name not in misfits}
    firsts = {name: tied.get(name, (name,))[0] for name in form.headers}
    filled = {firsts[name] for name in used}
    sizes = {name: prod(header.shape) for name, header in form.headers.items()}
    needed = {first for name, first in firsts.items() if first in filled or not _is_any(name, reference.may_lack)}
    return Fit(
        n_stored=sum(prod(header.shape) for header in stored.values()),
        n_used=sum(prod(stored[name].shape) for name in used),
        n_expected=sum(sizes[first] for first in needed),
        n_filled=sum(sizes[first] for first in filled),
    )


def _misnamed(pairs: Sequence[Renamed], reference: Reference) -> Iterator[CheckFinding]:
    groups: dict[str, list[Renamed]] = {}
    for pair in pairs:
        change = change_between(pair)
        groups.setdefault(change if change in groups or len(groups) < _MAX_CHANGES else OTHERWISE, []).append(pair)
    for change, group in groups.items():
        is_known = reference.is_library and all(
            pair.found.endswith(_KNOWN_ENDINGS) or pair.expected.endswith(_KNOWN_ENDINGS) for pair in group
        )
        severity: Severity = "note" if is_known else "error"
        prefix = prefix_to_strip(group)
        first = group[0]
        yield finding_about(
            "misnamed",
            severity,
            f"{counted(len(group), 'tensor')} of {reference.name} found under other names: {change}",
            [pair.found for pair in group],
            expected=f"`{first.expected:.200}`",
            found=f"`{first.found:.200}`",
            advice="transformers renames them when it loads"
            if is_known
            else f"tensorkeep reshard PATH DIRECTORY --strip-prefix {prefix}"
            if prefix
            else "Rename them: tensorkeep edit PATH --rename OLD=NEW, or load them with key_map=",
        )


def _absent(names: list[str], reference: Reference) -> Iterator[CheckFinding]:
    if names:
        yield finding_about(
            "missing",
            "error",
            f"{counted(len(names), 'tensor')} of {reference.name} not in the checkpoint: a loader leaves them random",
            names,
            advice="Get them from where the checkpoint was made, or load it into the model it was saved from",
        )


def _unexpected(names: list[str], reference: Reference) -> Iterator[CheckFinding]:
    if names:
        yield finding_about(
            "extra",
            "warning",
            f"{counted(len(names), 'tensor')} of the checkpoint not in {reference.name}: a loader drops them",
            names,
            advice="Load it into the model it was saved from, or leave them out: tensorkeep reshard --drop",
        )


def _of_other_shapes(
    misfits: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]], reference: Reference
) -> Iterator[CheckFinding]:
    if misfits:
        expected, found = next(iter(misfits.values()))
        turned = ", which is transposed" if len(found) == 2 and found == expected[::-1] else ""
        yield finding_about(
            "shape",
            "error",
            f"{counted(len(misfits), 'tensor')} of other shapes than in {reference.name}",
            list(misfits),
            expected=shape_text(expected),
            found=f"{shape_text(found)}{turned}",
            advice="Use the config that was saved with these tensors",
        )


def _of_other_dtypes(stored: Headers, expected: Headers, reference: Reference) -> Iterator[CheckFinding]:
    names = [
        name for name, header in expected.items() if name in stored and header.dtype not in {"", stored[name].dtype}
    ]
    if names:
        yield finding_about(
            "dtype",
            "note",
            f"{counted(len(names), 'tensor')} of other dtypes than in {reference.name}",
            names,
            expected=expected[names[0]].dtype,
            found=stored[names[0]].dtype,
        )


def _untied(
    stored: Headers, tied: Sequence[Sequence[str]], are_equal: AreEqual, reference: Reference
) -> Iterator[CheckFinding]:
    for group in tied:
        present = [name for name in group if name in stored]
        differing = [name for name in present[1:] if are_equal(present[0], name) is False]
        if differing:
            yield finding_about(
                "tie-broken",
                "error",
                f"{reference.name} has one tensor where the checkpoint has several with different values",
                [present[0], *differing],
                advice="Leave all but one out (tensorkeep reshard --drop), or untie them in the config",
            )
