"""The notebooks run as they are, and are committed with their outputs."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.commands import ROOT

BUDGET = "trials=10, max_epochs=4"  # which is cut short here
NOTEBOOKS = ("first_search.ipynb", "best_trials.ipynb", "compare_runs.ipynb")  # the second reads the first one's run

PLOTS = re.compile(r"\.plot[.(]")


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.ray
@pytest.mark.slow
def test_the_notebooks_run_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype")  # the committed ones have images, too
    monkeypatch.delenv("RUN", raising=False)
    found = {}
    for name in NOTEBOOKS:
        shutil.copy(ROOT / "notebooks" / name, tmp_path)
        notebook = nbformat.read(tmp_path / name, as_version=4)
        for cell in notebook.cells:
            cell.source = cell.source.replace(BUDGET, "trials=5, max_epochs=2").replace("trials=16", "trials=4")
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
        assert not [output for output in outputs(notebook) if output.output_type == "error"]
        found[name] = [kind for output in outputs(notebook) for kind in output.get("data", {})]
    assert found["first_search.ipynb"].count("application/vnd.plotly.v1+json") == 1
    assert found["best_trials.ipynb"].count("application/vnd.plotly.v1+json") == 9
    assert found["compare_runs.ipynb"].count("application/vnd.plotly.v1+json") == 1
    assert "text/html" in found["first_search.ipynb"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_committed_notebooks_have_outputs_that_a_code_host_shows(name: str) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    nbformat.validate(notebook)
    kinds = [kind for output in outputs(notebook) for kind in output.get("data", {})]
    figures = sum(bool(PLOTS.search(cell.source)) for cell in notebook.cells if cell.cell_type == "code")
    assert kinds.count("image/png") == figures > 0  # for viewers that run no scripts
    assert kinds.count("application/vnd.plotly.v1+json") == figures  # for those that do
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


def test_the_committed_search_shows_its_live_table() -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "first_search.ipynb", as_version=4)
    (live,) = [
        output for output in outputs(notebook) if "10 of 10 trials" in output.get("data", {}).get("text/html", "")
    ]
    assert "<svg" in live.data["text/html"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_committed_notebooks_tell_nothing_of_the_machine_that_ran_them(name: str) -> None:
    text = json.dumps(nbformat.read(ROOT / "notebooks" / name, as_version=4))
    assert "site-packages" not in text
    assert "/notebooks/" not in text  # a run's absolute path
    assert '"stderr"' not in text
