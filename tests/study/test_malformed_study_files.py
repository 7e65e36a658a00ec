"""`check` of study files that can't work: an exit code and a sentence, whatever is in them."""

import sys
from functools import cache
from pathlib import Path

import pytest

from tests.malformed import VALUES_MODULE, VALUES_TEXT, StudyFile, malformed
from tests.study.test_file import GOOD
from tuner.cli import main
from tuner.cli.main import parser

ALL = 1500
HERE = "that this machine has"  # what no line of the file is wrong about


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / f"{VALUES_MODULE}.py").write_text(VALUES_TEXT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, VALUES_MODULE, raising=False)
    return tmp_path


def checked(folder: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and the last line of what it says; what the file itself prints comes before."""
    path = folder / "space.py"
    path.write_bytes(content)
    code = main(["check", str(path)])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert code == 0 or printed.out == ""
    return code, printed.err.splitlines()[-1] if printed.err else ""


def what_is_wrong(folder: Path, file: StudyFile, capsys: pytest.CaptureFixture[str]) -> str | None:
    try:
        code, message = checked(folder, file.content, capsys)
    except BaseException as error:
        return f"{file.what}: {type(error).__name__}"
    told = message.startswith("tuner: ") and ("space.py" in message or HERE in message) and len(message) < 1500
    return None if code == 0 or (code == 2 and told) else f"{file.what}: {code}, {message}"


@pytest.mark.filterwarnings("ignore:careful:UserWarning")  # a file's own
@pytest.mark.filterwarnings("ignore:'NoneType' object is not callable; perhaps you missed a comma:SyntaxWarning")
def test_all_malformed_files_get_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[parser.__module__], "parser", cache(parser))  # it takes most of the time
    files = malformed(ALL)
    assert len({file.content for file in files}) == ALL
    assert [wrong for file in files if (wrong := what_is_wrong(folder, file, capsys))] == []


def test_the_same_seed_makes_the_same_files_and_another_one_others() -> None:
    assert malformed(400) == malformed(400)
    assert malformed(400) != malformed(400, seed=1)


def declared(changes: str) -> bytes:
    """A study of settings that work, changed; the study is on line 4."""
    settings = "dict(trial=train, space={'x': uniform(0, 1)}, metric='loss', mode='min')"
    return f"from tuner import *\ndef train(config): ...\nsettings = {settings}\nstudy = Study('a', **(settings | dict({changes})))\n".encode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            "budget=Budget(days=5)",
            "Budget has no 'days'; it has trials, max_epochs, hours, device_hours, total_epochs, target, min_improvement, "
            "disk_gb, minutes, full_trainings",
        ),
        (
            "budget=Budget(trails=5)",
            "Budget has no 'trails'; it has trials, max_epochs, hours, device_hours, total_epochs, target, "
            "min_improvement, disk_gb, minutes, full_trainings; did you mean 'trials'?",
        ),
        (
            "schedular=ASHA()",
            "Study has no 'schedular'; it has name, trial, space, metric, mode, search, scheduler, budget, resources, "
            "failures, start_from, warm_start, constraint, limits, latency, seed, repeats, refit, combine, "
            "working_folder; did you mean 'scheduler'?",
        ),
        ("scheduler=ASHA(grace=3)", "ASHA has no 'grace'; it has grace_epochs, reduction_factor, rule"),
        (
            "space={'x': loguniform(0.1)}",
            "loguniform needs loguniform(low, high), got a call missing 1 required positional argument: 'high'; add it",
        ),
        (
            "space={'x': uniform(1, 2, 3)}",
            "uniform needs uniform(low, high) at most, got a call that takes 2 positional arguments but 3 were given; "
            "leave some out",
        ),
        (
            "trial=ImageClassifier('digits'), metric='val_loss', space={'lr': [1e-3, 1e-2]}",
            "lr must be a float from 1e-08 to 10, got [0.001, 0.01]; write choice([0.001, 0.01]) to try each",
        ),
        ("space={'x': choice(range(10**9))}", "choice takes up to 100,000 values, got more of range(0, 1000000000); use randint(...)"),
        ("space={'x': choice([[]] * 2)}", "choice needs distinct values, got [] twice for 'x'; remove one"),
        ("budget=Budget(hours=10**400)", f"Budget.hours needs a number above 0, got 1{'0' * 298}…; leave it out for no limit"),
        ("budget=Budget(max_epochs=10**9)", "Budget.max_epochs needs at most 1,000,000, got 1000000000; report less often"),
        ("seed=2**128", f"seed needs at most 128 bits, got {2**128}; use 0"),
        ("mode=['min']", "mode needs 'min' or 'max', got ['min']; use 'max' for an accuracy, 'min' for a loss"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_told_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: str, message: str
) -> None:
    assert checked(folder, declared(changes), capsys) == (2, f"tuner: {message} (space.py, line 4)")


def test_a_value_that_contains_itself_is_told_apart_from_one_that_is_deep(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = declared("space={'x': LOOP}").replace(b"def train", b"LOOP = []; LOOP.append(LOOP)\ndef train")
    code, message = checked(folder, content, capsys)
    assert (code, message) == (
        2,
        "tuner: space needs dicts that don't contain themselves, got {'x': [[...]]}; remove the one that does "
        "(space.py, line 5)",
    )


def test_a_type_error_of_the_users_own_function_stays_what_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b"def Budget(hours): ...\nBudget(minutes=5)\n"
    assert checked(folder, content, capsys) == (
        2,
        f"tuner: {folder / 'space.py'} does not run: TypeError: Budget() got an unexpected keyword argument 'minutes' "
        "(space.py, line 2); fix the file",
    )


def test_a_working_file_is_still_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(folder, GOOD.encode(), capsys)[0] == 0
