"""Study files that can't work: one message from `check` and `run`, and nothing left behind."""

from pathlib import Path

import pytest

from tests.commands import tuner

GREETING = "from tuner import *\n"


CLASSIFIER = 'study = Study("d", trial=ImageClassifier("digits", weights=None), space={space})\n'


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GREETING + CLASSIFIER.format(space='{"lr": loguniform(0, 1)}'),
            "loguniform needs low > 0, got low=0 for 'lr'; use uniform or raise low (space.py, line 2)",
        ),
        (
            GREETING + CLASSIFIER.format(space='{"learning_rate": uniform(0.1, 1)}'),
            "'learning_rate' is not a hyperparameter of ImageClassifier; did you mean 'lr'? (space.py, line 2)",
        ),
        ("x = 1\ny = (\n", "space.py does not run: SyntaxError: '(' was never closed (space.py, line 2); fix the file"),
        (
            "x = 1\n1 / 0\n",
            "space.py does not run: ZeroDivisionError: division by zero (space.py, line 2); fix the file",
        ),
        (
            "search = 1\n",
            "space.py needs a module-level `study = Study(...)`, got nothing of that name; "
            "see search_spaces/ for examples",
        ),
        (
            GREETING + CLASSIFIER.format(space='{"lr": uniform(0.1, 1)}').replace("study =", "search ="),
            "space.py needs its study under the name `study`, got 'search'; rename it",
        ),
    ],
    ids=["space", "hyperparameter", "syntax", "exception", "nothing", "name"],
)
def test_a_study_file_that_cannot_work_gets_one_message_from_check_and_run_and_leaves_nothing(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "space.py").write_text(text)
    for verb in ("check", "run"):
        finished = tuner(verb, "space.py", folder=tmp_path, PYTHONDONTWRITEBYTECODE="")
        assert (finished.code, finished.out, finished.err) == (2, "", f"tuner: {message}\n")
        assert left_in(tmp_path) == ["space.py"]


def test_a_good_check_leaves_nothing_either(tmp_path: Path) -> None:
    (tmp_path / "space.py").write_text(GREETING + CLASSIFIER.format(space='{"lr": loguniform(1e-4, 1e-1)}'))
    assert tuner("check", "space.py", folder=tmp_path, PYTHONDONTWRITEBYTECODE="").code == 0
    assert left_in(tmp_path) == ["space.py"]
