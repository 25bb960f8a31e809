"""What `import tensorkeep` offers: exactly `__all__`, all of it documented, under the names that modules say."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import tensorkeep
from tests.support.for_each import for_each
from tests.support.source import FILES, relative

MODULES = sorted(
    "tensorkeep." + relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for path in FILES
    if relative(path) not in {"__init__.py", "__main__.py"}
)
OTHER_LIBRARIES = {
    *(f"tensorkeep.{library}" for library in ("flax", "jax", "keras", "mlx", "paddle", "tensorflow")),
    *(name for name in MODULES if re.match(r"tensorkeep\.(runs|integrations)\.(keras|mlx|paddle|tensorflow)", name)),
    "tensorkeep.integrations.sglang",
}
"""Modules that import libraries which crash in one process; tests/libraries looks at each in its own. SGLang is not
installed."""

PUBLIC_MODULES = [
    name
    for name in MODULES
    if not any(part.startswith("_") for part in name.split("."))
    and ".".join(name.split(".")[:2]) not in OTHER_LIBRARIES
    and name not in OTHER_LIBRARIES
]


def test_every_public_name_resolves_and_is_kept() -> None:
    for name in tensorkeep.__all__:
        value = getattr(tensorkeep, name)

        assert value is not None
        assert vars(tensorkeep)[name] is value, "the second look-up costs an import again"


def test_dir_is_all_and_the_public_modules() -> None:
    modules = {name.partition(".")[2] for name in MODULES if name.count(".") == 1}

    assert len(set(dir(tensorkeep))) == len(dir(tensorkeep))
    assert set(tensorkeep.__all__) <= set(dir(tensorkeep)) <= set(tensorkeep.__all__) | modules
    for name in (set(dir(tensorkeep)) & modules) - {name.partition(".")[2] for name in OTHER_LIBRARIES}:
        assert getattr(tensorkeep, name) is importlib.import_module(f"tensorkeep.{name}")


def test_star_import_brings_all() -> None:
    namespace: dict[str, object] = {}
    namespace.update({name: getattr(tensorkeep, name) for name in tensorkeep.__all__})

    assert namespace["open"] is tensorkeep.checkpoint.open_checkpoint
    assert namespace["SafetensorError"] is tensorkeep.errors.TensorkeepError


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'tensorkeep' has no attribute 'lod'"):
        tensorkeep.lod  # noqa: B018


def test_the_version_is_the_one_that_is_installed() -> None:
    from importlib.metadata import version

    assert tensorkeep.__version__ == version("tensorkeep")
    assert re.fullmatch(r"\d+\.\d+\.\d+", tensorkeep.__version__)


@for_each("module_name", PUBLIC_MODULES)
def test_a_public_module_says_what_it_exports_and_documents_it(module_name: str) -> None:
    module = importlib.import_module(module_name)

    assert module.__doc__
    if module_name.startswith("tensorkeep.cli"):
        return
    exported = getattr(module, "__all__", None)
    if exported is None:
        exported = [name for name in vars(module) if name.isupper()]
    for name in exported:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{module_name}.{name} has no docstring"


def test_public_classes_document_their_methods() -> None:
    for cls in (tensorkeep.TensorFile, tensorkeep.LazyTensor):
        for name, member in vars(cls).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(member), f"{cls.__name__}.{name} has no docstring"


def test_functions_say_every_argument_and_what_they_raise() -> None:
    for function in (tensorkeep.open, tensorkeep.load, tensorkeep.save):
        documented = inspect.getdoc(function) or ""

        assert "Raises:" in documented
        for argument in inspect.signature(function).parameters:
            assert re.search(rf"^    {argument}: ", documented, re.MULTILINE), argument


@pytest.mark.parametrize(
    ("argument", "kind", "error"), [("key", "KeyLike", "EncryptedError"), ("trust", "Trust", "TrustError")]
)
def test_functions_that_take_a_key_or_a_policy_say_what_they_raise(argument: str, kind: str, error: str) -> None:
    functions = [getattr(tensorkeep, name) for name in tensorkeep.__all__]
    documented = {
        function.__name__: inspect.getdoc(function) or ""
        for function in functions
        if inspect.isfunction(function)
        and (parameter := inspect.signature(function).parameters.get(argument))
        and kind in str(parameter.annotation)
    }
    inherited = "If `reshard` would raise it"

    assert len(documented) > 8
    assert [name for name, text in documented.items() if error not in text and inherited not in text] == []


def test_the_package_is_typed() -> None:
    import importlib.resources

    assert importlib.resources.files("tensorkeep").joinpath("py.typed").is_file()
