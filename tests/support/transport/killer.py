"""A program that kills saves of sets at every call that changes anything, for `test_transaction_kills`.

`killer.py FOLDER CASE`: a child process is forked for each call and dies after it, which is before the next one, or
in the middle of it if it writes. What the dead one left is then read, by somebody who may not finish it and by
somebody who may, who dies at each call too, and saved over. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tensorkeep.transport import finish_pending_commit
from tensorkeep.transport.atomic._staging import Staging
from tests.support.transport.sets import CASES, STAGING, Case, files_in, lay_out, locked, read, replace

WRITES = ("write", "writev", "pwrite")
CHANGES = (*WRITES, "open", "fsync", "replace", "unlink", "mkdir", "rmdir", "ftruncate", "fchmod", "chmod")


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(number: int, names: tuple[str, ...], *, halfway: bool) -> None:
    """Make this process die at the call of that number."""
    count = 0

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(target: Any, *arguments: Any, **keywords: Any) -> Any:
            nonlocal count
            count += 1
            if count != number:
                return call(target, *arguments, **keywords)
            try:
                if halfway:
                    return call(target, half_of(arguments[0]), *arguments[1:])
                return call(target, *arguments, **keywords)
            finally:
                die()

        return counted

    for name in names:
        setattr(os, name, deadly(getattr(os, name)))


def half_of(data: Any) -> Any:
    """Return the first half of a buffer or of a list of them."""
    if isinstance(data, list):
        return [half_of(b"".join(data))]
    return data[: len(data) // 2]


def killed(act: Callable[[], object]) -> bool:
    """Say whether a child process that does something died of it."""
    pid = os.fork()
    if not pid:
        try:
            act()
        except BaseException as error:  # must not come back into the parent's loop
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}, code
    return code != 0


def commit_and_die(folder: str, case: Case) -> None:
    """Die in the instant after the commit."""
    Staging.replay = die
    replace(folder, case)


def finish(folder: str) -> None:
    assert finish_pending_commit(folder, "model") is None


def outcome(folder: str, case: Case) -> str:
    """Return which set stands there, the same whoever looks, and make sure that the next save goes well."""
    with locked(folder):
        past = read(folder, case)
    finished = read(folder, case)
    assert past == finished, "who reads past sees another set than who finishes"
    if finished == case.old:
        replace(folder, case)
        result, expected = "old", case.new
    elif finished == case.new:
        replace(folder, Case(case.new, case.old))
        result, expected = "new", case.old
    else:
        raise AssertionError(f"a mixture: {sorted(finished)}")
    assert files_in(folder) == expected, f"the next save left {sorted(files_in(folder))}"
    assert STAGING not in os.listdir(folder), "the next save left its staging directory"
    return result


def kill_all(folder: str, case: Case, *, names: tuple[str, ...], halfway: bool, finishing: bool) -> dict[str, Any]:
    """Kill at each of these calls in turn, and count what was found afterwards."""
    outcomes: Counter[str] = Counter()
    number = 0
    while True:
        number += 1
        lay_out(folder, case.old)
        if finishing and not killed(partial(commit_and_die, folder, case)):
            break

        def act(number: int = number) -> None:
            arm(number, names, halfway=halfway)
            finish(folder) if finishing else replace(folder, case)

        if not killed(act):
            break
        try:
            outcomes[outcome(folder, case)] += 1
        except Exception as error:
            outcomes[f"call {number}: {error!r}"] += 1
    assert files_in(folder) == case.new
    return dict(outcomes)


def main(folder: str, case: Case) -> None:
    """Kill writers and finishers, after calls and within writes."""
    os.fsync = lambda fd: None
    kill = partial(kill_all, folder, case)
    result = {
        "save": kill(names=CHANGES, halfway=False, finishing=False),
        "save, within writes": kill(names=WRITES, halfway=True, finishing=False),
        "finish": kill(names=CHANGES, halfway=False, finishing=True),
        "finish, within writes": kill(names=WRITES, halfway=True, finishing=True),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], CASES[sys.argv[2]])
