"""The rules that a process was given, beside the recorded ones: steps are removed only where both agree."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tensorkeep.errors import FormatError, TensorkeepError, UnsupportedError
from tensorkeep.store._removal import outdated
from tensorkeep.store._retention import Mode, Retention, best_steps
from tensorkeep.store._rules_file import read_rules, write_rules
from tensorkeep.store.places import Place, Step


class RetentionWarning(UserWarning):
    """The rules cannot be followed: they are not the recorded ones, no step can be the best, or old ones stay."""


class GivenRules(msgspec.Struct, frozen=True):
    """Rules as arguments; the ones left out are the recorded ones, or the defaults of a new one."""

    keep_last: int | UnsetType | None = UNSET
    keep_best: int | UnsetType | None = UNSET
    keep_every: int | UnsetType | None = UNSET
    monitor: str | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET

    def check(self) -> None:
        """Refuse rules that make no sense."""
        if self.mode not in (UNSET, "min", "max"):
            raise UnsupportedError(f"mode {self.mode!r} is invalid", expected='"min" or "max"')
        if self.monitor is not UNSET and not (isinstance(self.monitor, str) and self.monitor.isprintable()):
            raise UnsupportedError("monitor is invalid", expected="the name of a metric", found=repr(self.monitor))
        for name, number, least in (
            ("keep_last", self.keep_last, 1),
            ("keep_best", self.keep_best, 0),
            ("keep_every", self.keep_every, 1),
        ):
            if number in (UNSET, None):
                continue
            if not isinstance(number, int) or number < least:
                raise UnsupportedError(f"{name} is invalid", expected=f"{least} or more, or None", found=repr(number))

    def members(self) -> dict[str, Any]:
        """Return those that were given."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}

    def over(self, rules: Retention) -> Retention:
        """Return the rules, with the given ones in place of theirs; the mode goes with its metric."""
        given = self.members()
        if self.mode is UNSET and self.monitor not in (UNSET, rules.monitor):
            given["mode"] = "min"
        return msgspec.structs.replace(rules, **given)


class Rules:
    """The rules of a store as one process applies them; the given ones remove more steps only if it prunes."""

    def __init__(self, place: Place, given: GivenRules, *, prunes: bool, durable: bool) -> None:
        given.check()
        self._place = place
        self._given = given
        self._prunes = prunes
        self._durable = durable
        self._warned: set[str] = set()

    def current(self) -> Retention:
        """Return the given rules over the recorded ones."""
        return self._given.over(read_rules(self._place) or Retention())

    def best_of(self, steps: Mapping[int, Mapping[str, float]]) -> int | None:
        """Return the best of some steps with their metrics; None if none has the one that decides."""
        rules = self.current()
        return next(iter(best_steps(steps, rules.monitor, rules.mode)), None)

    def best_if_known(self, steps: Mapping[int, Mapping[str, float]], *, stacklevel: int) -> int | None:
        """Return the best of some steps; warn, and return None, if the rules of the store cannot be read."""
        try:
            return self.best_of(steps)
        except TensorkeepError as error:
            problem = f"it is not known which step is the best: {error}"
            warnings.warn(problem, RetentionWarning, stacklevel=stacklevel + 1)
            return None

    def warn_if_blind_to(self, metrics: Mapping[str, float], *, stacklevel: int) -> None:
        """Warn if a step with these metrics can never be the best."""
        with suppress(TensorkeepError):  # the save itself warns of rules that cannot be read
            rules = self.current()
            if rules.is_blind_to(metrics):
                warnings.warn(
                    f"this step can never be the best: its metrics lack `{rules.monitor}`, and have only"
                    f" {', '.join(metrics):.200}. Open the store with monitor= one of these, or with keep_best=0",
                    RetentionWarning,
                    stacklevel=stacklevel + 1,
                )

    def record(self, steps: list[Step]) -> None:
        """Record the given rules if no step can be lost by that, or if the caller said so."""
        with suppress(TensorkeepError):  # then all steps stay, and `agreed` says why
            recorded = self._recorded() if self._prunes else read_rules(self._place)
            rules = self._given.over(recorded or Retention())
            is_told = self._prunes and (recorded is not None or self._given.members())
            if rules != recorded and (is_told or not steps or _is_safe(rules, recorded, steps)):
                write_rules(self._place, rules, durable=self._durable)

    def agreed(self, *, stacklevel: int) -> Retention | None:
        """Return the rules if they are the recorded ones; otherwise say once that nothing is removed."""
        try:
            recorded = read_rules(self._place)
        except TensorkeepError as error:
            self._warn(str(error), stacklevel + 1)
            return None
        rules = self._given.over(recorded or Retention())
        if rules == recorded:
            return rules
        if recorded is None:
            problem = f"the rules of its steps are not known, and these would remove some: {rules}"
            advice = "Pass prune=True with rules to remove steps, or keep_last=None to keep all"
        else:
            differing = {
                name: value for name, value in self._given.members().items() if value != getattr(recorded, name)
            }
            problem = f"it was opened with {_text(differing)}, but the rules of the store are {recorded}"
            advice = "Leave the rules out to keep the recorded ones, or pass prune=True to replace them"
        self._warn(f"{problem}. {advice}", stacklevel + 1)
        return None

    def imposed(self) -> Retention:
        """Return the given rules over the recorded ones, which must have some if none are given."""
        recorded = self._recorded()
        if recorded is None and not self._given.members():
            raise UnsupportedError(
                "the rules of the store are not known", path=self._place.root, hint="Give them, such as keep_last=3"
            )
        return self._given.over(recorded or Retention())

    def replace(self, rules: Retention) -> None:
        """Record rules."""
        write_rules(self._place, rules, durable=self._durable)

    def _recorded(self) -> Retention | None:
        """Return the rules of the store; damaged ones count as missing if others replace them."""
        try:
            return read_rules(self._place)
        except FormatError:
            if self._given.members():
                return None
            raise

    def _warn(self, problem: str, stacklevel: int) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            warnings.warn(
                f"{self._place.root}: no step is removed: {problem}", RetentionWarning, stacklevel=stacklevel + 1
            )


def _is_safe(rules: Retention, recorded: Retention | None, steps: list[Step]) -> bool:
    """Say whether rules keep everything that was to be kept, as far as that is known."""
    return rules.keeps_all_of(recorded) if recorded else not outdated(rules, steps)


def _text(members: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in members.items())
