"""Programs that run in forks of a process that has imported torch: each is spared the seconds that takes.

A fork is a process of its own with its own modules, arguments, directory, environment and output, and ends as any
interpreter does. Name `torch._dynamo` for programs that train: the first step of an optimizer imports it, which takes
longer than torch. Used as a program, this is the process that forks: `python -m tests.support.forks MODULES...`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil

LIMIT_S = 240


class Done(NamedTuple):
    """How a program ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class ForkServer:
    """A process that has imported modules, and runs programs in forks of itself."""

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, "-m", "tests.support.forks", *modules]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def run(self, script: Path, *arguments: object, cwd: Path | None = None, env: Mapping[str, str]) -> Done:
        """Run a script to its end."""
        return self._run(script, arguments, cwd, [dict(env)])[0]

    def run_ranks(self, n_ranks: int, script: Path, *arguments: object, env: Mapping[str, str]) -> list[Done]:
        """Run a script in several processes, which find each other as those of torchrun do."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(n_ranks)}
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n_ranks)]
        shared = {**env, **rendezvous, "LOCAL_WORLD_SIZE": str(n_ranks)}
        return self._run(script, arguments, None, [shared | rank for rank in ranks])

    def _run(
        self, script: Path, arguments: tuple[object, ...], cwd: Path | None, environments: list[dict[str, str]]
    ) -> list[Done]:
        with tempfile.TemporaryDirectory() as folder:
            job = {
                "argv": [str(script), *map(str, arguments)],
                "cwd": str(cwd or Path.cwd()),
                "environments": environments,
                "output": folder,
            }
            print(json.dumps(job), file=self._process.stdin, flush=True)
            codes = json.loads(self._process.stdout.readline())
            return [
                Done(code, *(Path(folder, f"{name}-{number}").read_text() for name in ("stdout", "stderr")))
                for number, code in enumerate(codes)
            ]


def main(modules: list[str]) -> None:
    """Fork for each line of the input; in a fork, become the program."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # a full collection in a fork would copy all of it
    for line in sys.stdin:
        job = json.loads(line)
        pids = []
        for number in range(len(job["environments"])):
            if not (pid := os.fork()):
                _become(job, number)
                return
            pids.append(pid)
        codes = [_code_of(pid) for pid in pids]
        print(json.dumps(codes), flush=True)


def _code_of(pid: int) -> int:
    """Wait for a fork, and end it if it takes too long."""
    fork = psutil.Process(pid)
    try:
        return int(fork.wait(LIMIT_S))
    except psutil.TimeoutExpired:
        fork.kill()
        return int(fork.wait())


def _become(job: dict[str, Any], number: int) -> None:
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environments"][number])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        path = os.path.join(job["output"], f"{name}-{number}")
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.argv = job["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    if "RANK" in os.environ:
        # A thread of gloo outlives its process group. If it frees its last tensor while the interpreter ends, the
        # process is aborted when all is done ("terminate called without an active exception", torch 2.13).
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
