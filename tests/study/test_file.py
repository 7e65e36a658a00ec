"""Study files: loaded, located where they fail, refused where they declare nothing."""

import sys
from pathlib import Path

import pytest

from tuner import (
    StudyError,
    load_study,
)
from tuner.errors import SpaceError


def write(folder: Path, text: str, name: str = "space.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


GOOD = """
from tuner import *
study = Study("digits", trial=ImageClassifier("digits", weights=None), space={"lr": loguniform(1e-4, 1e-1)})
"""


def test_a_file_gives_its_study_and_the_study_its_file(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, GOOD))
    assert (study.name, study.source) == ("digits", tmp_path / "space.py")


def test_a_file_can_import_a_module_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "LOW = 0.001", "bounds_beside.py")
    path = write(tmp_path, "from bounds_beside import LOW\n" + GOOD.replace("1e-4", "LOW"))
    assert load_study(path).search_space.dimensions["lr"].describe() == "loguniform(0.001, 0.1)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("study = 3\n", "needs a module-level `study = Study(...)`, got a int; see search_spaces/ for examples"),
        (
            "x = 3\n",
            "needs a module-level `study = Study(...)`, got nothing of that name; see search_spaces/ for examples",
        ),
        (GOOD.replace("study =", "search ="), "needs its study under the name `study`, got 'search'; rename it"),
        ("import nowhere_to_be_found\n", "does not run: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("x = (\n", "does not run: SyntaxError: '(' was never closed (space.py, line 1)"),
        ("x = 1\ny = x / 0\n", "does not run: ZeroDivisionError: division by zero (space.py, line 2); fix the file"),
        ("import sys\nsys.exit(0)\n", "needs to declare a study and return, got exit(0); remove it"),
    ],
)
def test_a_file_that_declares_no_study_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(StudyError) as caught:
        load_study(write(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path / 'space.py'} ")
    assert message in str(caught.value)


def refusal(path: Path) -> str:
    with pytest.raises(StudyError) as caught:
        load_study(path)
    return str(caught.value)


def test_a_syntax_error_is_located_once(tmp_path: Path) -> None:
    path = write(tmp_path, "x = 1\ny = (\n")
    assert refusal(path) == f"{path} does not run: SyntaxError: '(' was never closed (space.py, line 2); fix the file"


def test_a_syntax_error_of_an_imported_module_is_located_there(tmp_path: Path) -> None:
    write(tmp_path, "a = 1\nb = 2\nif a:\nc = 3\n", "badly_indented_beside.py")
    path = write(tmp_path, "import badly_indented_beside\n")
    assert refusal(path) == (
        f"{path} does not run: IndentationError: expected an indented block after 'if' statement on line 3 "
        "(badly_indented_beside.py, line 4); fix the file"
    )


def test_an_exception_in_an_imported_module_is_located_at_the_import(tmp_path: Path) -> None:
    write(tmp_path, "x = {}['key']\n", "failing_beside.py")
    path = write(tmp_path, "x = 1\n\nimport failing_beside\n")
    assert refusal(path) == f"{path} does not run: KeyError: 'key' (space.py, line 3); fix the file"


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, "space.txt")
    assert refusal(path) == f"a study file needs a name that ends in .py, got '{path}'; rename it"


def test_a_folder_is_no_study_file(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"a study file is a Python file that declares `study`, got '{tmp_path}', which")


def test_a_missing_file_with_nothing_like_it_is_refused_without_a_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(Path("zzz/qqq.py")) == (
        "a study file is a Python file that declares `study`, got 'zzz/qqq.py', which is no file; give the path of one"
    )


def test_the_study_class_in_place_of_a_study_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "from tuner import Study\nstudy = Study\n")
    assert (
        refusal(path)
        == f"{path} needs a module-level `study = Study(...)`, got a type; see search_spaces/ for examples"
    )


def test_loading_leaves_nothing_beside_the_file_and_python_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write(tmp_path, "LOW = 0.001", "leaves_nothing_beside.py")
    load_study(write(tmp_path, "import leaves_nothing_beside\n" + GOOD))
    refusal(write(tmp_path, "x = 1 / 0\n", "broken.py"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.py", "leaves_nothing_beside.py", "space.py"]
    assert sys.dont_write_bytecode is False


def test_a_file_that_was_changed_within_a_second_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    texts = [GOOD.replace("1e-4", f"{low}e-4") for low in (1, 2, 3)]
    lows = [load_study(write(tmp_path, text)).search_space.dimensions["lr"].describe() for text in texts]
    assert lows == ["loguniform(0.0001, 0.1)", "loguniform(0.0002, 0.1)", "loguniform(0.0003, 0.1)"]


def test_a_refusal_names_the_line_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"raise low \(space.py, line 3\)$"):
        load_study(write(tmp_path, GOOD.replace("1e-4", "0")))


def test_the_line_is_that_of_the_name_that_is_wrong(tmp_path: Path) -> None:
    """Where a statement has many lines, as a study has."""
    lines = GOOD.replace("{", "{\n").replace(", ", ",\n").splitlines()
    (at,) = [number for number, line in enumerate(lines, 1) if '"lr"' in line]
    for wrong, message in (('"learnin_rate"', "'learnin_rate' is not a hyperparameter"), ('"lr"', "for 'lr'")):
        text = "\n".join(lines).replace('"lr"', wrong).replace("1e-4", "0" if wrong == '"lr"' else "1e-4")
        with pytest.raises(StudyError, match=rf"{message}.*\(space.py, line {at}\)$"):
            load_study(write(tmp_path, text))


def test_a_missing_file_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "digits.py")
    with pytest.raises(StudyError) as caught:
        load_study(tmp_path / "digit.py")
    assert str(caught.value) == (
        f"a study file is a Python file that declares `study`, got '{tmp_path}/digit.py', which is no file; "
        f"did you mean '{tmp_path}/digits.py'?"
    )


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent.parent.parent / "search_spaces").glob("*.py")), ids=lambda p: p.stem
)
def test_every_study_file_of_the_project_loads(path: Path) -> None:
    assert load_study(path).search_space.dimensions
