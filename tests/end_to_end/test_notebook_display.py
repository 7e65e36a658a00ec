"""The live table of a search in a real Jupyter kernel."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

SEARCH = """
import tuner
from tuner import *


def train(config):
    for epoch in range(2):
        tuner.report(loss=config["lr"] / (epoch + 1))


space = {"lr": uniform(0, 1)}
study = Study("cheap", trial=train, space=space, metric="loss", mode="min", search=Random(), scheduler=NoEarlyStopping(),
    budget=Budget(trials=3, max_epochs=2), resources=Resources(cpus=1), warm_start=None)
run = tuner.run(study, wandb="off")
"""


def outputs_of(source: str, folder: Path) -> list[Any]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return list(notebook.cells[0].outputs)


@pytest.mark.ray
def test_the_live_table_stays_in_the_cell_until_after_the_search(tmp_path: Path) -> None:
    shown = [output.data["text/html"] for output in outputs_of(SEARCH, tmp_path) if "data" in output]
    assert len(shown) == 1
    assert "3 of 3 trials: 3 done" in shown[0]
    assert "<svg" in shown[0]
    assert "00002" in shown[0]
    assert "writing the report" not in shown[0]
