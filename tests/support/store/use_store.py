"""A program that works with a store while others do, for `test_several_processes`.

`use_store.py ROOT save FIRST LAST STRIDE`: saves these steps. `use_store.py ROOT read SECONDS`: lists and loads again
and again. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

from tensorkeep.errors import SourceMissingError
from tests.support.store.run_states import state, step_of, store


def save(root: Path, first: int, last: int, stride: int) -> dict[str, int]:
    """Save steps whose loss gets worse, of which few are kept."""
    kept = store(root, keep_last=2)
    for step in range(first, last, stride):
        kept.save(step, state(step), {"valid_loss": step})
    return {"saved": len(range(first, last, stride))}


def read(root: Path, seconds: float) -> dict[str, int]:
    """Read until the time is up; only a step that was removed meanwhile may be missing."""
    found = store(root, keep_last=2)
    latest: list[int] = []
    n_savers = 2
    n_listed = n_removed = 0
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        latest.append(step_of(found.load()))
        assert step_of(found.load("best")) >= 0
        steps = found.steps()
        assert steps, "there is a step at every instant"
        assert steps == sorted(set(steps))
        for step in steps:
            try:
                assert step_of(found.load(step)) == step
                n_listed += 1
            except SourceMissingError:
                assert not Path(found.path_of(step)).exists(), step
                n_removed += 1
    for saver in range(n_savers):  # each saves ascending, and knows nothing of the other
        its = [step for step in latest if step % n_savers == saver]
        assert its == sorted(its), "an older step was read after a newer one"
    return {"loads": len(latest), "different": len(set(latest)), "listed": n_listed, "removed": n_removed}


if __name__ == "__main__":
    warnings.simplefilter("error")
    place = Path(sys.argv[1])
    is_saver = sys.argv[2] == "save"
    print(json.dumps(save(place, *map(int, sys.argv[3:6])) if is_saver else read(place, float(sys.argv[3]))))
