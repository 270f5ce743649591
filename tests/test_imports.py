"""What importing costs, who may import whom, and that packages export what they say."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fairpremium"

HEAVY = (
    "torch", "lightgbm", "dask", "distributed", "duckdb", "pyspark", "fastapi", "uvicorn", "httpx", "psycopg",
    "sqlalchemy", "cryptography", "plotly", "altair", "vl_convert", "typer", "rich", "polars", "matplotlib",
    "xlsxwriter", "openpyxl", "onnx", "onnxruntime", "mlflow", "prometheus_client",
)  # fmt: skip

# Which packages a package may import: the table of docs/design.md, lowest first, with everything below spelled out.
LAYERS: dict[str, set[str]] = {"privacy": set(), "families": set(), "blocks": set(), "portfolios": set()}
LAYERS["models"] = {"families", "blocks"}
LAYERS["corrections"] = {"models", "privacy"} | LAYERS["models"]
LAYERS["noise"] = {"corrections"} | LAYERS["corrections"]
LAYERS["tariffs"] = {"models", "privacy"} | LAYERS["models"]
LAYERS["pricing"] = {"noise", "tariffs"} | LAYERS["noise"]
LAYERS["audit"] = LAYERS["model_documents"] = LAYERS["mlflow"] = {"pricing"} | LAYERS["pricing"]
LAYERS["diagnostics"] = LAYERS["monitoring"] = LAYERS["spectrum"] = {"audit"} | LAYERS["audit"]
LAYERS["alternatives"] = {"spectrum"} | LAYERS["spectrum"]
PARTIES: dict[str, set[str]] = {"protocol": set()}  # sub-packages of parties, lowest first
PARTIES["store"] = PARTIES["release"] = PARTIES["bundle"] = {"protocol"}
PARTIES["clients"] = {"protocol", "bundle"}
PARTIES["service"] = {"protocol", "store", "release", "bundle"}
PARTIES["backup"] = PARTIES["console"] = PARTIES["collect"] = {"service"} | PARTIES["service"]
PARTIES["http"] = {"console", "collect"} | PARTIES["console"]
for name, below in PARTIES.items():
    LAYERS[f"parties.{name}"] = (
        {"audit", "parties.clock", "parties.faults"} | LAYERS["audit"] | {f"parties.{other}" for other in below}
    )
LAYERS["parties.clock"] = LAYERS["parties.faults"] = set()
LAYERS["parties"] = {"audit"} | LAYERS["audit"] | {f"parties.{name}" for name in PARTIES}
LAYERS["paper"] = {"parties", "portfolios"} | LAYERS["parties"]
LAYERS["cli"] = {"paper", "diagnostics", "monitoring", "model_documents", "alternatives", "spectrum"} | LAYERS["paper"]
LAYERS["__main__"] = {"cli"}

FOUNDATION = {"arrays", "csv_cells", "documents", "errors", "labels", "lazy", "progress", "workbooks"}  # free to all
MAY_USE_THE_TOP_LEVEL = {"cli", "paper", "__main__"}  # `from fairpremium import DiscriminationFreePricer`
FORBIDDEN = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}

SOURCES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = ("fairpremium", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, name: str, source: str | None = None) -> Iterator[tuple[int, str, str | None]]:
    """Every import of a file, at any depth, as (line, module, imported name)."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(source or path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, None
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                yield node.lineno, base, alias.name


def package_of(parts: Sequence[str]) -> str:
    """The package that a module belongs to, by the names below ``fairpremium``: that of `LAYERS`, or its own name."""
    if parts[:1] == ["parties"] and len(parts) > 1 and f"parties.{parts[1]}" in LAYERS.keys() | FOUNDATION:
        return f"parties.{parts[1]}"
    return parts[0] if parts else ""


def wrong_arrows(path: Path, name: str, source: str | None = None) -> list[str]:
    """The imports of one module that do not point downwards, or that reach into another package."""
    own = package_of(name.split(".")[1:])
    if not own:
        return []  # the package's own __init__ exports names of all
    allowed = LAYERS.get(own, set()) | FOUNDATION | {own}
    wrong = []
    for line, module, imported in imports_of(path, name, source):
        parts = module.split(".")
        if parts[0] != "fairpremium":
            continue
        full = [*parts[1:], *([imported] if imported else [])]
        target = package_of(full)
        if target == "__version__" or (target not in LAYERS.keys() | FOUNDATION and own in MAY_USE_THE_TOP_LEVEL):
            continue
        if target not in allowed:
            wrong.append(f"{name}:{line} ({own}) imports fairpremium.{target}")
        elif target != own and any(part.startswith("_") for part in full):
            wrong.append(f"{name}:{line} ({own}) imports fairpremium.{'.'.join(full)}, which is private")
    return wrong


def optional_modules_loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_importing_the_package_loads_no_optional_dependency():
    # scikit-learn 1.9 loads rich, where it is installed, for its own progress bars; that is not ours to mend.
    loaded = optional_modules_loaded_by("import fairpremium")
    assert loaded <= optional_modules_loaded_by("import sklearn.preprocessing") & {"rich"}


def test_every_package_is_in_the_table_of_layers():
    packages = {p.stem for p in PACKAGE.glob("*.py")} | {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    packages |= {f"parties.{p.parent.name}" for p in PACKAGE.glob("parties/*/__init__.py")}
    unknown = {name for name in packages if not name.startswith("_")} - set(LAYERS) - FOUNDATION
    assert not unknown, f"say in LAYERS what {sorted(unknown)} may import"


def test_no_folder_has_more_than_twenty_modules():
    folders = {path.parent for path in SOURCES}
    crowded = {str(f.relative_to(PACKAGE)): n for f in folders if (n := len(list(f.glob("*.py")))) > 20}
    assert not crowded, f"give {crowded} sub-packages"


def test_layers_import_downwards_only():
    wrong = [arrow for path in SOURCES for arrow in wrong_arrows(path, module_name(path))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("name", "source", "is_wrong"),
    [
        ("fairpremium.models._x", "from fairpremium.corrections import score", True),
        ("fairpremium.models._x", "def f():\n    from ..pricing import _price", True),
        ("fairpremium.models._x", "from .. import pricing", True),
        ("fairpremium.models._x", "import fairpremium.noise.anchor", True),
        ("fairpremium.models._x", "from fairpremium import DiscriminationFreePricer", True),
        ("fairpremium.privacy._x", "from fairpremium.families import Poisson", True),
        ("fairpremium._x", "from fairpremium.pricing import a", True),
        ("fairpremium.models._x", "from fairpremium.families._family import Poisson", True),
        ("fairpremium.models._x", "from fairpremium.families import _family", True),
        ("fairpremium.parties.store._x", "from fairpremium.parties.service import ThirdParty", True),
        ("fairpremium.parties.store._x", "from fairpremium.parties.protocol._keys import new_key", True),
        ("fairpremium.parties.store._x", "from fairpremium.parties import ThirdParty", True),
        ("fairpremium.parties.clients._x", "from fairpremium.parties.store import Database", True),
        ("fairpremium.privacy._x", "from fairpremium.parties.faults import point", True),
        ("fairpremium.cli._x", "from fairpremium.pricing._pricer import DiscriminationFreePricer", True),
        ("fairpremium.cli.parties._x", "from fairpremium.cli._output import tell", False),
        ("fairpremium.parties.service._x", "from fairpremium.parties.store import schema", False),
        ("fairpremium.parties.service._x", "from fairpremium.parties.faults import point", False),
        ("fairpremium.models._x", "from ..families import Poisson", False),
        ("fairpremium.models._x", "from . import _net\nimport numpy", False),
        ("fairpremium.pricing._x", "from fairpremium import __version__", False),
        ("fairpremium.cli", "from fairpremium import DiscriminationFreePricer", False),
    ],
)
def test_the_layer_check_sees_a_wrong_arrow(name, source, is_wrong):
    assert bool(wrong_arrows(Path("_x.py"), name, source)) is is_wrong


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name == "__init__.py"], ids=module_name)
def test_every_package_lists_what_it_exports(path):
    package = importlib.import_module(module_name(path))
    assert isinstance(getattr(package, "__all__", None), list), f"{package.__name__} has no __all__"
    assert len(set(package.__all__)) == len(package.__all__)
    missing = [name for name in package.__all__ if not hasattr(package, name)]
    assert not missing, f"{package.__name__}.__all__ names {missing}, which do not exist"


def test_the_source_never_unpickles():
    found = []
    for path in SOURCES:
        for line, module, _ in imports_of(path, module_name(path)):
            if module.split(".")[0] in FORBIDDEN:
                found.append(f"{path.relative_to(PACKAGE)}:{line} imports {module}")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in {"read_pickle", "to_pickle"}:
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} uses {node.attr}")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} sets allow_pickle")
    assert not found, "\n".join(found)
