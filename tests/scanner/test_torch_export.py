"""Programs from which torch.export runs something when it loads them: it does so here, and `scan` says so."""

from __future__ import annotations

import io
import json
import pickle
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tensorkeep.formats.pt2 import code_in_graph
from tensorkeep.scanner import scan
from tests.support.formats.exported import replaced, rewritten, small

GRAPH = "models/model.json"
CONSTANTS = "data/constants/model_constants_config.json"
OBJECT = b"""
    {"config": {"o": {"path_name": "opaque_obj_0", "is_param": false, "use_pickle": true, "tensor_meta": null}}}
"""
RAN: list[str] = []


def note() -> tuple[()]:
    """Record that it was called; its name is not known to be data."""
    RAN.append("called")
    return ()


class Payload:
    """Calls `note` where it is unpickled."""

    def __reduce__(self) -> Any:
        return note, ()


def findings(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    report = scan(path)
    assert report.is_clean == (not report.files[0].findings)
    return "; ".join(f"{found.severity}: {found.message}" for found in report.files[0].findings)


def load_by_torch(data: bytes) -> None:
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.load(io.BytesIO(data))


def test_a_program_of_torch_operators_is_clean(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, y: Any = None, *, flag: bool = True) -> Any:
            z = self.linear(x)
            z = torch.cond(z.sum() > 0, lambda a: a + 1, lambda a: a * 2, (z,))
            with torch.no_grad():
                z = torch.cat([z, z[: x.shape[0] - 1]])
            n = (x.sum() > 0).sum().item()
            torch._check(n >= 0)
            torch._check(n < 5)
            return {"out": z, "more": [torch.zeros(n * 2 + 1), z.shape[0] // 3]}

    sizes = {"x": {0: torch.export.Dim("batch", min=3, max=64)}, "y": None, "flag": None}
    program = torch.export.export(Net(), (torch.ones(6, 4), None), {"flag": False}, dynamic_shapes=sizes)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={"a.txt": "text"})

    assert findings(tmp_path / "net.pt2", buffer.getvalue()) == ""
    assert findings(tmp_path / "small.pt2", small()) == ""
    assert scan(tmp_path / "small.pt2").files[0].form == "program of torch.export"


def test_what_runs_when_torch_loads_a_clean_program(tmp_path: Path) -> None:
    """Python that torch makes of the graph is compiled; nothing is imported, opened, unpickled or started."""
    load_by_torch(small())  # imports what torch needs
    seen: list[str] = []
    is_on = True
    sys.addaudithook(lambda event, _: seen.append(event) if is_on else None)
    load_by_torch(small())
    is_on = False

    assert {"compile", "exec"} <= set(seen)
    assert not {"import", "open", "pickle.find_class", "subprocess.Popen", "os.system", "ctypes.dlopen"} & set(seen)


def with_module(name: str) -> Callable[[bytes], bytes]:
    """Return a change of the description of inputs that makes torch import a module."""

    def change(content: bytes) -> bytes:
        graph = json.loads(content)
        signature = graph["graph_module"]["module_call_graph"][0]["signature"]
        protocol, spec = json.loads(signature["in_spec"])
        spec["context"] = json.dumps({"__enum__": True, "fqn": f"{name}:E", "name": "A"})
        spec["type"] = "builtins.dict"
        signature["in_spec"] = json.dumps([protocol, spec])
        return json.dumps(graph).encode()

    return change


def test_sizes_are_evaluated(tmp_path: Path) -> None:
    found = small().partition(b'"expr_str": "')[2].partition(b'"')[0].decode()
    code = f"__import__('{__name__}', fromlist=['RAN']).RAN.append('evaluated')"
    data = rewritten(small(), {GRAPH: replaced(found, code)})
    RAN.clear()
    load_by_torch(data)

    assert "evaluated" in RAN
    assert "torch.export evaluates" in findings(tmp_path / "a.pt2", data)
    assert "suspicious" in findings(tmp_path / "a.pt2", data)


def test_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_by_a_program.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    data = rewritten(small(), {GRAPH: with_module("imported_by_a_program")})
    load_by_torch(data)

    assert "imported_by_a_program" in sys.modules
    assert "torch.export imports 'imported_by_a_program:E'" in findings(tmp_path / "a.pt2", data)


@pytest.mark.parametrize(
    "changes",
    [
        {"data/sample_inputs/model.pt": pickle.dumps(Payload(), 2)},
        {"data/sample_inputs/model.pt": pickle.dumps(Payload(), 0)},
        {
            CONSTANTS: OBJECT,
            "data/constants/opaque_obj_0": pickle.dumps(Payload(), 0),
        },
    ],
    ids=["inputs", "protocol-0", "object"],
)
def test_pickles_are_unpickled(changes: dict[str, Any], tmp_path: Path) -> None:
    data = rewritten(small(), changes)
    RAN.clear()
    load_by_torch(data)

    assert RAN == ["called"]
    assert "not known to be data" in findings(tmp_path / "a.pt2", data)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"nodes": [{"target": "torch.serialization.os.system"}]}, "calls 'torch.serialization.os.system'"),
        ({"nodes": [{"target": "torch.ops.load_library"}]}, "calls"),
        ({"nodes": [{"target": "torch.ops.aten.from_file.default"}]}, "calls"),
        ({"nodes": [{"target": "torch.ops.torchvision.write_file.default"}]}, "calls"),
        ({"nodes": [{"target": "torch.ops.mylib.op.default"}]}, "calls"),
        ({"nodes": [{"target": "torch.ops.aten.__class__.mro"}]}, "calls"),
        ({"arg": {"as_operator": "_operator.call"}}, "calls"),
        ({"inputs": [{"name": "x=print(1)", "kind": 2}]}, "may get into the code"),
        ({"inputs": {"x\nimport os": 1}}, "may get into the code"),
        ({"guards_code": ["exec('1')"]}, "runs the guard"),
        ({"expr_str": "Symbol('a').__class__"}, "evaluates"),
        ({"expr_str": "lambdify (x, y)"}, "evaluates"),
        ({"expr_str": "1" * 9_999 + "@"}, "evaluates"),
        ({"expr_str": "a" * 5_000 + "." + "b"}, "evaluates"),
        ({"in_spec": '[1, {"context": "{\\"default_factory_module\\": \\"os\\"}"}]'}, "imports 'os'"),
        ({"in_spec": '[1, {"context": "[\\"x, *, y=print()\\"]"}]'}, "may get into the code"),
        ({"in_spec": "{"}, "is not JSON"),
    ],
    ids=range(17),
)
def test_what_is_not_known_to_be_harmless_is_reported(graph: Any, message: str) -> None:
    assert any(message in text for text in code_in_graph(json.dumps(graph).encode()))


@pytest.mark.parametrize(
    "graph",
    [
        {"expr_str": "Add(Mul(Integer(2), Symbol('s6', positive=True, integer=True)), Integer(-1))"},
        {"expr_str": "2*s0 + FloorDiv(s1, 4) >= 3"},
        {"guards_code": ["L['x'].size()[0] >= 2 and L['y'][0].size()[1] == 3"]},
        {"target": "torch.ops.aten.__and__.Tensor", "as_operator": "torch.sym_max"},
        {"metadata": {"stack_trace": "anything(at all)"}, "arg": {"as_string": "exec('1')"}},
    ],
    ids=range(5),
)
def test_what_only_computes_is_not(graph: Any) -> None:
    assert list(code_in_graph(json.dumps(graph).encode())) == []


def test_compiled_code_is_reported(tmp_path: Path) -> None:
    data = rewritten(small(), {"data/aotinductor/model/a.wrapper.so": b"\x7fELF"})

    assert "torch loads and runs the compiled code" in findings(tmp_path / "a.pt2", data)


def test_a_graph_is_found_whatever_the_case_of_its_name(tmp_path: Path) -> None:
    data = rewritten(small(), {"Models/model.json": b'{"target": "torch.hub.load"}'})

    assert "torch.hub.load" in findings(tmp_path / "a.pt2", data)


def test_a_list_of_weights_may_be_in_no_folder(tmp_path: Path) -> None:
    data = rewritten(small(), {"a_weights_config.json": OBJECT, "opaque_obj_0": pickle.dumps(Payload())})

    assert "not known to be data" in findings(tmp_path / "a.pt2", data)
