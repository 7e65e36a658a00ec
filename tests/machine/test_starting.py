"""The command's first moment, and its streams: Ctrl-C while it imports, and an exit code that no reader changes."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment, study_file, tuner
from tests.results.test_results import make_run
from tests.searches import CURVE, study

SENTENCE = "tuner: interrupted before the search started; nothing was written"


@pytest.mark.parametrize(
    ("way", "moment"),
    [
        ("tuner", "tuner.space"),
        ("tuner", "ray._private.worker"),
        ("python -m tuner", "tuner.cli"),
        *(
            pytest.param(way, moment, marks=pytest.mark.slow)
            for way in ("tuner", "python -m tuner")
            for moment in ("tuner.study.declaration", "rich.live")
        ),
    ],
)
def test_ctrl_c_while_the_command_imports_is_one_sentence(tmp_path: Path, way: str, moment: str) -> None:
    command = ["-m", "tuner"] if way == "python -m tuner" else [shutil.which("tuner", path=Path(sys.executable).parent)]
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *command, "run", study_file(tmp_path, study(CURVE))],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:  # a line for each module, when it has been imported
        if line.split("|")[-1].strip() == moment:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, out) == (130, "")
    assert [line for line in said if "W&B" not in line and "starting Ray" not in line] == [SENTENCE]
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    return tmp_path / "run"


def shell(line: str, folder: Path) -> int:
    """The exit code of a command line in bash, with `tuner` for this checkout's."""
    script = f'set -o pipefail; tuner() {{ "{sys.executable}" -m tuner "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment(), stdout=subprocess.DEVNULL, timeout=300, check=False
    ).returncode


STREAMS = ["2>&-", ">&-", "<&-", ">&- 2>&-", "2> >(true)", "| true", "| head -1", "2>&1 | head -1"]
OF_MESSAGES = ["2>&-", ">&- 2>&-", "2> >(true)", "2>&1 | head -1"]  # what can go wrong where nothing is on stdout


@pytest.mark.parametrize(
    ("verb", "code", "streams"),
    [
        *(("show run", 0, streams) for streams in STREAMS),
        *(("show nowhere", 2, streams) for streams in OF_MESSAGES),
        ("runs --frobnicate", 2, "2>&-"),
        *(
            pytest.param(verb, 2, streams, marks=pytest.mark.slow)
            for verb, quick in (("show nowhere", OF_MESSAGES), ("runs --frobnicate", ["2>&-"]))
            for streams in STREAMS
            if streams not in quick
        ),
    ],
)
def test_what_becomes_of_the_output_changes_no_exit_code(run: Path, verb: str, code: int, streams: str) -> None:
    assert shell(f"tuner {verb} {streams}", run.parent) == code


def test_a_file_opened_while_stderr_is_closed_is_not_written_to_by_mistake(tmp_path: Path) -> None:
    space = tmp_path / "space.py"
    space.write_text("import sys\nopened = open('opened', 'w')\nprint('hello', file=sys.stderr)\nraise ValueError\n")
    assert shell("tuner check space.py 2>&-", tmp_path) == 2
    assert (tmp_path / "opened").read_text() == ""


HIDING = ("json", "typing", "random", "types", "numpy", "ray", "torch", "logging")


def test_files_beside_a_study_hide_no_module_that_tuner_needs(tmp_path: Path) -> None:
    path = study_file(tmp_path, study(CURVE))
    for name in HIDING:
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    checked = tuner("check", path, folder=tmp_path)
    assert (checked.code, checked.err) == (0, "")


def test_a_study_that_imports_such_a_name_is_told_which_file_to_rename(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("MINE = 1\n")
    path = study_file(tmp_path, "import json\n" + study(CURVE))
    checked = tuner("check", path, folder=tmp_path)
    assert checked.code == 2
    assert checked.err == (
        f"tuner: a module beside a study file needs a name of its own, got '{tmp_path}/json.py', but Python finds the "
        f"'json' that {Path(path).name} imports in {json.__file__!r}; rename one of them\n"
    )


def test_a_study_may_have_the_name_of_a_module_that_it_imports(tmp_path: Path) -> None:
    path = Path(study_file(tmp_path, "import json\njson.dumps([1])\n" + study(CURVE))).rename(tmp_path / "json.py")
    checked = tuner("check", path, folder=tmp_path)
    assert (checked.code, checked.err) == (0, "")
