"""Programs that run in forks of a process that has imported torch: each is spared the seconds that takes.

A fork is a process of its own with its own modules, arguments, directory, environment and output, and ends as any
interpreter does. One process per test worker imports torch and what the first step of an optimizer imports, which
takes longer still. Its forks import more, such as `transformers`, and run the programs that name these modules.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

LIMIT_S = 240
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000


class Done(NamedTuple):
    """How a program ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run(
    program: Path | str,
    *arguments: object,
    modules: Iterable[str] = (),
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    own_mounts: bool = False,
) -> Done:
    """Run a program to its end.

    Args:
        program: A script, or Python code.
        *arguments: Its arguments.
        modules: What is imported before it begins, besides torch.
        cwd: Its directory.
        env: Its environment, if not that of the tests.
        own_mounts: Whether it may mount what only it sees.
    """
    return _run(program, arguments, modules, cwd, [dict(os.environ if env is None else env)], own_mounts)[0]


def run_ranks(
    n_ranks: int, program: Path, *arguments: object, modules: Iterable[str] = (), env: Mapping[str, str] | None = None
) -> list[Done]:
    """Run a script in several processes, which find each other as those of torchrun do."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(n_ranks)}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n_ranks)]
    shared = {**(os.environ if env is None else env), **rendezvous, "LOCAL_WORLD_SIZE": str(n_ranks)}
    return _run(program, arguments, modules, None, [shared | rank for rank in ranks], own_mounts=False)


def _run(
    program: Path | str,
    arguments: tuple[object, ...],
    modules: Iterable[str],
    cwd: Path | None,
    environments: list[dict[str, str]],
    own_mounts: bool,
) -> list[Done]:
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(program, str):
            code, program = program, Path(folder, "program.py")
            program.write_text(code, encoding="utf-8")
        job = {
            "argv": [str(program), *map(str, arguments)],
            "modules": list(modules),
            "cwd": str(cwd or Path.cwd()),
            "environments": environments,
            "own_mounts": own_mounts,
            "output": folder,
        }
        codes = json.loads(_root().do(json.dumps(job)))
        return [
            Done(code, *(Path(folder, f"{name}-{number}").read_text() for name in ("stdout", "stderr")))
            for number, code in enumerate(codes)
        ]


class _Server:
    """A process that forks for each line it is told."""

    def __init__(self, jobs: IO[str], codes: IO[str], pid: int) -> None:
        self._jobs, self._codes, self._pid = jobs, codes, pid

    def do(self, job: str) -> str:
        print(job, file=self._jobs, flush=True)
        return self._codes.readline()

    def end(self) -> None:
        self._jobs.close()
        os.waitpid(self._pid, 0)


_started: list[tuple[_Server, subprocess.Popen[str]]] = []


def _root() -> _Server:
    """Return the process that has imported torch, started again if a test that took too long has killed it.

    It ends with the tests, when nobody can write to it any more.
    """
    if not _started or _started[0][1].poll() is not None:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        _started[:] = [(_Server(process.stdin, process.stdout, process.pid), process)]
    return _started[0][0]


def _serve(jobs: IO[str], codes: IO[str]) -> None:
    """Fork for each job; return at the end of the jobs and, in a fork, of the program."""
    gc.freeze()  # a full collection in a fork would copy all of it
    servers: dict[tuple[str, ...], _Server] = {}
    for line in jobs:
        job = json.loads(line)
        if modules := tuple(job.pop("modules")):
            if modules not in servers:
                server = _fork_server(modules)
                if server is None:
                    return
                servers[modules] = server
            print(servers[modules].do(json.dumps(job | {"modules": []})), end="", file=codes, flush=True)
            continue
        pids = []
        for number in range(len(job["environments"])):
            if not (pid := os.fork()):
                _become(job, number)
                return
            pids.append(pid)
        print(json.dumps([_code_of(pid) for pid in pids]), file=codes, flush=True)
    for server in reversed(servers.values()):  # later ones hold the pipes of earlier ones open
        server.end()


def _fork_server(modules: tuple[str, ...]) -> _Server | None:
    """Fork a server that has imported more; return None in the fork, when its jobs have ended."""
    (its_jobs, jobs), (codes, its_codes) = os.pipe(), os.pipe()
    if pid := os.fork():
        os.close(its_jobs)
        os.close(its_codes)
        return _Server(open(jobs, "w"), open(codes), pid)
    os.close(jobs)
    os.close(codes)
    for name in modules:
        importlib.import_module(name)
    with open(its_jobs) as told, open(its_codes, "w") as answers:
        _serve(told, answers)
    return None


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
    if job["own_mounts"]:
        _leave_mounts()
    sys.argv = job["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    if "RANK" in os.environ:
        # A thread of gloo outlives its process group. If it frees its last tensor while the interpreter ends, the
        # process is aborted when all is done ("terminate called without an active exception", torch 2.13).
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _leave_mounts() -> None:
    """Do what `unshare --mount --map-root-user` does."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")
    for name, content in (("uid_map", f"0 {user} 1"), ("setgroups", "deny"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(content)


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401 - which the first step of an optimizer would import

    _serve(sys.stdin, sys.stdout)
