"""Tab in a shell: the script that `tuner completion` prints, read by a real bash, and what it answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import environment, tuner
from tests.test_architecture import HEAVY

ASK = """
eval "$(tuner completion bash)"
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9
    COMPREPLY=()
    _python_argcomplete tuner
    printf '%s\\n' "${COMPREPLY[@]}" ---
done
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a storage folder, another one, and some files."""
    folder = tmp_path_factory.mktemp("completed")
    for run in ("runs/digits/2026-11-21T09-36-11", "runs/digits/2026-11-22T08-00-00", "other/a b/2026-11-20T07-00-00"):
        (folder / run).mkdir(parents=True)
        (folder / run / "run.json").write_text("{}")
    for name in ("space.py", "notes.txt", ".hidden.py"):
        (folder / name).write_text("")
    (folder / "photos").mkdir()
    return folder


def completed(folder: Path, *lines: str) -> list[list[str]]:
    """What bash offers after each line."""
    python = Path(sys.executable).parent
    finished = subprocess.run(
        ["bash", "-c", ASK],
        input="".join(f"{line}\n" for line in lines),
        cwd=folder,
        env=environment(PATH=f"{python}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    answers = finished.stdout.removesuffix("---\n").split("---\n")
    return [sorted(filter(None, map(str.strip, answer.splitlines()))) for answer in answers]


def test_bash_completes_verbs_options_choices_and_run_folders(folder: Path) -> None:
    runs = ["runs", "runs/digits/2026-11-21T09-36-11", "runs/digits/2026-11-22T08-00-00"]
    answers = {
        "tuner re": ["refine", "refit", "rename", "replay", "report", "resume", "retry"],
        "tuner show --": ["--all", "--follow", "--help", "--json", "--log", "--port", "--trial", "--watch", "--web"],
        "tuner show ": ["other/", "photos/", *runs],
        "tuner resume ru": runs,
        "tuner compare runs runs/digits/2026-11-22": ["runs/digits/2026-11-22T08-00-00"],
        "tuner export ./runs/d": [f"./runs/{rest}" for rest in ("digits", *(run[5:] for run in runs[1:]))],
        "tuner show other/": ["other/a\\ b", "other/a\\ b/2026-11-20T07-00-00"],
        "tuner show nowhere/": [],
        "tuner show ~nobody-of-this-name/": [],
        "tuner run ": ["other/", "photos/", "runs/", "space.py"],
        "tuner run .": [".hidden.py"],
        "tuner run space.py --strategy d": ["ddp", "dp"],
        "tuner run space.py --gpus-per-trial ": ["auto"],
        "tuner run space.py --wandb off": ["off", "offline"],
        "tuner run space.py --trials ": [],
        "tuner runs --storage p": ["photos/"],
        "tuner completion ": ["bash", "fish", "zsh"],
    }
    assert dict(zip(answers, completed(folder, *answers), strict=True)) == answers


def test_an_answer_loads_no_heavy_library(folder: Path) -> None:
    line = "tuner show "
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    finished = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tuner"],
        cwd=folder,
        env=environment(**asked, _ARGCOMPLETE_STDOUT_FILENAME="answer"),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {row.split("|")[-1].strip().partition(".")[0] for row in finished.stderr.splitlines()}
    assert "argcomplete" in loaded
    assert loaded & HEAVY == set()
    assert "runs/digits/2026-11-22T08-00-00" in (folder / "answer").read_text()


@pytest.mark.parametrize(("shell", "word"), [("zsh", "compdef"), ("fish", "complete --command tuner")])
def test_other_shells_get_scripts_of_their_own(tmp_path: Path, shell: str, word: str) -> None:
    finished = tuner("completion", shell, folder=tmp_path)
    assert finished.code == 0, finished.err
    assert word in finished.out


def test_an_unknown_shell_is_refused(tmp_path: Path) -> None:
    finished = tuner("completion", "csh", folder=tmp_path)
    assert (finished.code, finished.out) == (2, "")
    assert "invalid choice: 'csh' (choose from" in finished.err
