"""An executor that does what real ones may do: tasks travel as pickles, run late and in any order, and get lost."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from threading import Timer
from typing import Any


class OddExecutor(Executor):
    """Runs each task in a thread of its own, after a random delay.

    Args:
        lose: Numbers of the attempts whose results get lost.

    Attributes:
        tasks: Name of each class of tasks to how many there were.
        nbytes: Bytes of the largest task as a pickle.
    """

    def __init__(self, lose: frozenset[int] = frozenset()) -> None:
        self.tasks: Counter[str] = Counter()
        self.nbytes = 0
        self._lose = lose
        self._random = random.Random(0)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        text = pickle.dumps((fn, args, kwargs))
        self.nbytes = max(self.nbytes, len(text))
        is_lost = self.tasks.total() in self._lose
        self.tasks[type(args[-1]).__name__] += 1
        Timer(self._random.uniform(0, 0.01), _run, (future, text, is_lost)).start()
        return future


def _run(future: Future[Any], text: bytes, is_lost: bool) -> None:
    if future.set_running_or_notify_cancel():
        work, args, kwargs = pickle.loads(text)
        result = pickle.loads(pickle.dumps(work(*args, **kwargs)))
        if is_lost:
            future.set_exception(ConnectionError("the result was lost"))
        else:
            future.set_result(result)
