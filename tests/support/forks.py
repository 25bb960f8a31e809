"""Programs that run in forks of a process that has imported what they need: each is spared the seconds that takes.

A fork is a process of its own with its own modules, arguments, directory, environment and output, and ends as an
interpreter does, except that it leaves its memory to the system. A job names the modules that are imported before it
begins. The process that forks for `a, b` is a fork of the one for `a` that has imported `b`: nothing is imported
twice, and nothing that a job has not named.
"""

from __future__ import annotations

import atexit
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
import threading
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

LIMIT_S = 240
COMMAND = ("pydantic.type_adapter", "numpy", "rich.table", "tensorkeep.checkpoint", "tensorkeep.cli")
"""What most commands import, the first of them through typer."""

TRAINING = "torch._dynamo"
"""What the first step of an optimizer imports; it takes longer than torch."""
ACCELERATE = (TRAINING, "accelerate")
LIGHTNING = (TRAINING, "lightning.pytorch")
SKORCH = (TRAINING, "skorch")
TRANSFORMERS = (TRAINING, "transformers.trainer")

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000


class Done(NamedTuple):
    """How a program ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class Server:
    """A process that forks for each job."""

    def __init__(self, jobs: IO[str], codes: IO[str], pid: int) -> None:
        self._jobs, self._codes, self._pid = jobs, codes, pid

    def run(
        self,
        program: Path | str,
        *arguments: object,
        modules: Iterable[str] = (),
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        own_mounts: bool = False,
        is_one_output: bool = False,
    ) -> Done:
        """Run a program to its end.

        Args:
            program: A script, `-m` and the name of a module, or Python code.
            *arguments: Its arguments.
            modules: What is imported before it begins.
            cwd: Its directory.
            env: Its environment, if not that of this process.
            own_mounts: Whether it may mount what only it sees.
            is_one_output: Whether errors go where the output goes.
        """
        how = {"own_mounts": own_mounts, "is_one_output": is_one_output}
        environment = dict(os.environ if env is None else env)
        return self._run(program, arguments, modules, [environment], cwd=str(cwd or Path.cwd()), **how)[0]

    def run_ranks(
        self,
        n_ranks: int,
        program: Path,
        *arguments: object,
        modules: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> list[Done]:
        """Run a script in several processes, which find each other as those of torchrun do."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(n_ranks)}
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(n_ranks)]
        shared = {**(os.environ if env is None else env), **rendezvous, "LOCAL_WORLD_SIZE": str(n_ranks)}
        how = {"cwd": str(Path.cwd()), "own_mounts": False, "is_one_output": False}
        return self._run(program, arguments, modules, [shared | rank for rank in ranks], **how)

    def _run(
        self,
        program: Path | str,
        arguments: tuple[object, ...],
        modules: Iterable[str],
        environments: list[dict[str, str]],
        **how: object,
    ) -> list[Done]:
        with tempfile.TemporaryDirectory() as folder:
            if isinstance(program, str) and not program.startswith("-m "):
                code, program = program, Path(folder, "program.py")
                program.write_text(code, encoding="utf-8")
            argv = [str(program), *map(str, arguments)]
            job = {"argv": argv, "modules": list(modules), "environments": environments, "output": folder, **how}
            return [
                Done(code, *(Path(folder, f"{name}-{number}").read_text("utf-8") for name in ("stdout", "stderr")))
                for number, code in enumerate(self.do(job))
            ]

    def do(self, job: dict[str, Any]) -> list[int]:
        """Return how each process of a job ended."""
        print(json.dumps(job), file=self._jobs, flush=True)
        codes: list[int] = json.loads(self._codes.readline())
        return codes

    def end(self) -> None:
        self._jobs.close()
        os.waitpid(self._pid, 0)


def run(program: Path | str, *arguments: object, modules: Iterable[str] = (TRAINING,), **how: Any) -> Done:
    """Run a program to its end; see `Server.run`."""
    return _root().run(program, *arguments, modules=modules, **how)


def run_ranks(
    n_ranks: int, program: Path, *arguments: object, modules: Iterable[str] = (TRAINING,), **how: Any
) -> list[Done]:
    """Run a script in several processes; see `Server.run_ranks`."""
    return _root().run_ranks(n_ranks, program, *arguments, modules=modules, **how)


_started: list[tuple[Server, subprocess.Popen[str]]] = []


def _root() -> Server:
    """Return the process that forks for all, started again if a test that took too long has killed it.

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
        _started[:] = [(Server(process.stdin, process.stdout, process.pid), process)]
    return _started[0][0]


def _serve(jobs: IO[str], codes: IO[str]) -> None:
    """Fork for each job, to the end of the jobs."""
    gc.freeze()  # a full collection in a fork would copy all of it
    servers: dict[str, Server] = {}
    for line in jobs:
        job = json.loads(line)
        if job["modules"]:
            module, *job["modules"] = job["modules"]
            if module not in servers:
                servers[module] = fork_server(module)
            ends = servers[module].do(job)
        else:
            pids = [_forked(job, number) for number in range(len(job["environments"]))]
            ends = [_code_of(pid) for pid in pids]
        print(json.dumps(ends), file=codes, flush=True)
    for server in reversed(servers.values()):  # later ones hold the pipes of earlier ones open
        server.end()


def fork_server(*modules: str) -> Server:
    """Fork a server that has imported more modules."""
    (its_jobs, jobs), (codes, its_codes) = os.pipe(), os.pipe()
    if pid := os.fork():
        os.close(its_jobs)
        os.close(its_codes)
        return Server(open(jobs, "w"), open(codes), pid)
    try:
        os.close(jobs)
        os.close(codes)
        for module in modules:
            importlib.import_module(module)
        with open(its_jobs) as told, open(its_codes, "w") as answers:
            _serve(told, answers)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _forked(job: dict[str, Any], number: int) -> int:
    """Begin a program in a fork, and return its pid."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        code = _code_at_the_end_of(job, number)
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _code_at_the_end_of(job: dict[str, Any], number: int) -> int:
    try:
        _become(job, number)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    else:
        return 0
    return 1


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
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    if job["is_one_output"]:
        os.dup2(1, 2)
    if job["own_mounts"]:
        _leave_mounts()
    sys.argv = job["argv"]
    if sys.argv[0].startswith("-m "):
        sys.path[0] = job["cwd"]
        runpy.run_module(sys.argv[0].removeprefix("-m "), run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(sys.argv[0])
        runpy.run_path(sys.argv[0], run_name="__main__")


def _leave_mounts() -> None:
    """Do what `unshare --mount --map-root-user` does."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")
    for name, content in (("uid_map", f"0 {user} 1"), ("setgroups", "deny"), ("gid_map", f"0 {group} 1")):
        Path("/proc/self", name).write_text(content)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
