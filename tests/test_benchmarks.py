"""Each benchmark starts as the documents say: `python benchmarks/NAME.py`, from the repository's folder."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.forked import run_copy

PROGRAMS = [
    file.name for file in sorted((ROOT / "benchmarks").glob("*.py")) if '__name__ == "__main__"' in file.read_text()
]
# What Python does with a program's file, up to the call of what it is for: its folder is the first to be looked in, and
# the one where the command is typed isn't among them.
START = """
import runpy, sys
from pathlib import Path

program = Path(sys.argv[1])
sys.path = [str(program.parent), *(path for path in sys.path if Path(path or ".").resolve() != program.parent.parent)]
for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "benchmarks")]:
    del sys.modules[name]
runpy.run_path(str(program), run_name="__started__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_finds_what_it_imports(name: str) -> None:
    done = run_copy(START, str(ROOT / "benchmarks" / name))
    assert (done.code, done.err) == (0, "")


def test_benchmarks_import_names_that_are_there() -> None:
    """What the slow test above finds, but for a benchmark's own start."""
    missing = [
        f"{file.name}: {node.module}.{name.name}"
        for file in sorted((ROOT / "benchmarks").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tuner"
        for name in node.names
        if not _is_there(str(node.module), name.name)
    ]
    assert missing == []


def _is_there(module: str, name: str) -> bool:
    found = import_module(module)
    return hasattr(found, name) or (hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None)


def test_the_documents_name_benchmarks_that_are_there() -> None:
    pages = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    words = [word for page in pages for word in page.read_text().split() if word.startswith("benchmarks/")]
    named = {Path(word).name for word in words if word.endswith(".py")}
    assert named
    assert sorted(named - set(PROGRAMS)) == []
