"""Real processes of one jax job, with two devices of the CPU each and gloo between them.

`jax_processes.py` run as a program is one process: it reads calls from its standard input, pickled, and answers.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, Self

__all__ = ["N_DEVICES", "Failed", "JaxProcesses", "Killed", "shared"]

N_DEVICES = 2
"""Devices of each process."""


@cache
def shared(n_processes: int) -> JaxProcesses:
    """Return processes that all tests of this run share; whoever kills one needs processes of its own."""
    processes = JaxProcesses(n_processes).__enter__()
    atexit.register(processes.__exit__)
    return processes


class Failed(Exception):
    """What a process raised, with its traceback as text."""


class Killed(Exception):
    """A process ended."""


class JaxProcesses:
    """As many processes as are asked for, each with `N_DEVICES` devices."""

    def __init__(self, n_processes: int, heartbeat_s: int = 10) -> None:
        self.n_processes = n_processes
        self._heartbeat_s = heartbeat_s
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={N_DEVICES}"}
        for number in range(self.n_processes):
            command = [sys.executable, "-m", __name__, str(number), str(self.n_processes), str(port)]
            command.append(str(self._heartbeat_s))
            self._processes.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **settings},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function of a module in all processes."""
        call = pickle.dumps((function.__module__, function.__qualname__, args))
        for process in self._processes:
            assert process.stdin is not None
            try:
                process.stdin.write(len(call).to_bytes(8, "big") + call)
                process.stdin.flush()
            except BrokenPipeError:
                pass

    def kill(self, number: int) -> None:
        """End a process at once."""
        self._processes[number].kill()

    def results(self) -> list[Any]:
        """Return for each process its result, or `Failed` or `Killed`."""
        return [_answer_of(process) for process in self._processes]

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function in all processes, and return what they return."""
        self.start(function, *args)
        results = self.results()
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


def _answer_of(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    size = process.stdout.read(8)
    if len(size) < 8:
        return Killed(process.wait())
    failed, result = pickle.loads(process.stdout.read(int.from_bytes(size, "big")))
    return Failed(failed) if failed else result


def main(number: int, n_processes: int, port: int, heartbeat_s: int) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is not an answer
    import jax

    if n_processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            f"127.0.0.1:{port}",
            n_processes,
            number,
            heartbeat_timeout_seconds=heartbeat_s,
            shutdown_timeout_seconds=2,
            initialization_timeout=60,
        )
    while size := sys.stdin.buffer.read(8):
        module, name, args = pickle.loads(sys.stdin.buffer.read(int.from_bytes(size, "big")))
        try:
            answer = pickle.dumps(("", getattr(importlib.import_module(module), name)(*args)))
        except BaseException:
            answer = pickle.dumps((f"process {number}: {traceback.format_exc()[-3000:]}", None))
        answers.write(len(answer).to_bytes(8, "big") + answer)
        answers.flush()
    os._exit(0)  # without waiting for the others


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
