"""`install_as_safetensors`: tensorkeep under the name safetensors."""

import subprocess
import sys

import pytest


def run(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_nothing_heavy_is_imported():
    result = run(
        "import sys, tensorkeep; tensorkeep.install_as_safetensors(); import safetensors; "
        "print('torch' in sys.modules, safetensors.SafetensorError is tensorkeep.SafetensorError)"
    )
    assert result.stdout.split() == ["False", "True"], result.stderr


def test_twice_is_once():
    result = run(
        "import sys, tensorkeep; n = len(sys.meta_path); tensorkeep.install_as_safetensors(); "
        "tensorkeep.install_as_safetensors(); print(len(sys.meta_path) - n)"
    )
    assert result.stdout.strip() == "1", result.stderr


def test_a_library_that_was_imported_before_is_named():
    result = run(
        "import sys, types, safetensors, tensorkeep\n"
        "early = types.ModuleType('early'); early.safe_open = safetensors.safe_open; sys.modules['early'] = early\n"
        "tensorkeep.install_as_safetensors()\n"
        "import safetensors; print(safetensors.safe_open is tensorkeep.safe_open)"
    )
    assert result.stdout.strip() == "True", result.stderr
    assert "early imported safetensors before" in result.stderr


INSTALLED = """
import importlib.metadata as m
find, installed = m.MetadataPathFinder.find_distributions, %r
class Other(m.Distribution):
    read_text = lambda self, name: f"Name: safetensors\\nVersion: {installed}\\n" if name == "METADATA" else None
    locate_file = None
def find_distributions(context=m.DistributionFinder.Context()):
    return iter([Other()] if installed else []) if context.name == "safetensors" else find(context)
m.MetadataPathFinder.find_distributions = find_distributions
import tensorkeep
tensorkeep.install_as_safetensors(%s)
import safetensors
print(m.version("safetensors"), safetensors.__version__, hasattr(safetensors, "PrefetchLoader"))
"""
"""Says what is installed, since two versions cannot be installed at once."""


@pytest.mark.parametrize(
    ("installed", "asked", "expected"),
    [
        (None, "", "0.8.0 0.8.0 False"),
        ("0.8.3", "", "0.8.3 0.8.3 False"),
        ("0.9.2", "", "0.9.2 0.9.2 True"),
        ("0.8.0", "'0.9'", "0.9.0rc1 0.9.0rc1 True"),
        ("0.9.2", "'0.8'", "0.8.0 0.8.0 False"),
    ],
)
def test_the_version_is_the_one_installed_or_asked_for(installed, asked, expected):
    result = run(INSTALLED % (installed, asked))
    assert result.stdout.strip() == expected, result.stderr


def test_versions_that_cannot_be_stood_in_for():
    result = run(
        "import tensorkeep\n"
        "for version in '1.0', '0.9', '0.8', None:\n"
        "    try: tensorkeep.install_as_safetensors(version)\n"
        "    except ValueError as error: print(error)"
    )
    assert result.stdout.splitlines() == [
        "tensorkeep stands in for safetensors 0.8 or 0.9: found '1.0'",
        "tensorkeep already stands in for safetensors 0.9 here: found '0.8'",
    ]


@pytest.mark.parametrize("version", ["0.8", "0.9"])
def test_names_of_the_compiled_module(version):
    result = run(
        "import sys, tensorkeep; tensorkeep.install_as_safetensors(sys.argv[1])\n"
        "import safetensors\n"
        "assert safetensors._safetensors_rust.safe_open is tensorkeep.safe_open\n"
        "from safetensors._safetensors_rust import SafetensorError, TensorSpec, deserialize, safe_open\n"
        "assert SafetensorError is tensorkeep.SafetensorError\n"
        "print(*sorted(name for name in vars(safetensors._safetensors_rust) if not name.startswith('__')))",
        version,
    )
    common = ["SafetensorError", "TensorSpec", "_safe_open_handle", "deserialize", "safe_open", "serialize"]
    added = ["PrefetchLoader", "PySafeSlice", "TensorMeta"] if version == "0.9" else []
    assert result.stdout.split() == sorted([*common, "serialize_file", *added]), result.stderr


@pytest.mark.parametrize("module", ["flax", "mlx", "paddle", "tensorflow"])
def test_modules_of_other_libraries(module):
    result = run(
        "import sys, tensorkeep; tensorkeep.install_as_safetensors()\n"
        "import importlib\n"
        "found = importlib.import_module(f'safetensors.{sys.argv[1]}')\n"
        "print(found is importlib.import_module(f'tensorkeep.{sys.argv[1]}'), found.load_file.__module__)",
        module,
    )
    assert result.stdout.split() == ["True", f"tensorkeep.{module}"], result.stderr
