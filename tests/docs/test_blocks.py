"""Every shell line and Python block of README and docs/ is run, but for those that say why not.

The blocks of a page are run in their order, in one folder and one namespace. A block with a title is a file. Lines of
tuner are run in this process by the function that the command calls. One search is run for real, that of README with
the options of its comment "shortened"; pages about finished runs get a copy of it. `run` lines of other pages are
parsed, and their study is checked with their options: all that `run` does before it starts Ray. `resume` lines are run.
"""

import argparse
import importlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.commands import Finished, tuner
from tests.docs.blocks import PAGES, ROOT, RUNNABLE, Block, blocks, runs_wanted
from tuner.cli import main
from tuner.cli.main import parser
from tuner.study.file import load_study

REASONS = (
    "needs a cluster",
    "needs a GPU",
    "needs an account",
    "needs the network",
    "needs a second driver",
    "the demo run has no failed trials",
    "waits for a trial that runs",
    "changes this clone",
    "takes more than 20 s",
    "serves until it is ended",
    "needs a server",
    "needs a container engine",
)

# Pages whose blocks resume searches or train trials again: run by `make test-all`, their lines are parsed by `make test`.
LONG = ("docs/how-to/disk.md", "docs/how-to/replay.md", "docs/how-to/resume.md")

NOT_RUN = [block for page in PAGES for block in blocks(page) if block.not_run is not None]


def test_blocks_that_are_not_run_say_why() -> None:
    assert [block.place for block in NOT_RUN if block.not_run not in REASONS] == []
    assert set(REASONS) == {block.not_run for block in NOT_RUN}  # no reason is kept that nobody gives
    run = [block for page in PAGES for block in blocks(page) if block.language in RUNNABLE and block.not_run is None]
    assert len(run) > len(
        [block for block in NOT_RUN if block.page.name != "measured.md"]
    )  # whose benchmarks take minutes


ONLY_READ = [*NOT_RUN, *(block for name in LONG for block in blocks(ROOT / name) if block.not_run is None)]


@pytest.mark.parametrize("block", ONLY_READ, ids=lambda block: block.place)
def test_a_block_that_is_not_run_is_at_least_well_formed(block: Block) -> None:
    if block.language == "python":
        compile(block.text, block.place, "exec")
        return
    if block.language != "sh":
        return
    subprocess.run(["bash", "-n", "-c", block.text], check=True, capture_output=True)
    for command in block.commands():
        if "$" not in command and (arguments := tuner_arguments(command)) is not None:
            parser().parse_args(arguments)  # which ends the process where it refuses


def test_every_block_has_a_language() -> None:
    assert [block.place for page in PAGES for block in blocks(page) if not block.language] == []


# Running them


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is the working directory, whose modules can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_runnable_blocks(*, runs: bool) -> list[Any]:
    return [
        pytest.param(page, marks=pytest.mark.slow) if page_name(page) in LONG else page
        for page in PAGES
        if bool(runs_wanted(page)) is runs
        and any(block.language in RUNNABLE and block.not_run is None for block in blocks(page))
    ]


@pytest.mark.parametrize("page", with_runnable_blocks(runs=False), ids=page_name)
def test_the_blocks_of_a_page_run(page: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make_photos(folder / "photos")
    run_blocks(page, folder)


@pytest.mark.ray
@pytest.mark.parametrize("page", with_runnable_blocks(runs=True), ids=page_name)
def test_the_blocks_of_a_page_about_runs_run(
    page: Path, folder: Path, readme_search: tuple[Finished, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(readme_search[1], folder / "runs")
    if runs_wanted(page) == 2:
        (first,) = (folder / "runs" / "digits").iterdir()
        shutil.copytree(first, first.with_name(f"{first.name}-2"))
    run_blocks(page, folder)


def make_photos(folder: Path) -> None:
    """What the tutorials call your photos: two classes of four images."""
    for kind, colour in (("cat", "orange"), ("dog", "brown")):
        (folder / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (40, 30), colour).save(folder / kind / f"{number}.jpg")


def run_blocks(page: Path, folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "a_page_of_the_documents"}
    for block in blocks(page):
        if block.not_run is not None or block.language not in RUNNABLE:
            continue
        if block.title:
            (folder / block.title).write_text(block.text)
        if block.language == "sh":
            for command in block.commands():
                run_command(command, block)
        elif block.title:
            assert load_study(folder / block.title).name
        else:
            exec(compile(block.text, block.place, "exec"), namespace)


def run_command(command: str, block: Block) -> None:
    arguments = tuner_arguments(command)
    if arguments is None:
        subprocess.run(["bash", "-euc", command], check=True, timeout=300, env=with_this_python())
        return
    if arguments[0] == "resume":
        finished = tuner(*arguments, *shlex.split(block.shortened or ""), folder=Path.cwd())
        assert finished.code == 0, finished.err
    else:
        code = main(checked(arguments) if arguments[0] == "run" else arguments)
        assert code == 0, f"{block.place}: {command}"


def tuner_arguments(command: str) -> list[str] | None:
    """What follows `python -m tuner`, its stars resolved as a shell does; None for another command."""
    words = shlex.split(command)
    if words[:3] != ["python", "-m", "tuner"]:
        return None
    matches = (
        (word, sorted(map(str, Path().glob(word))) or [word]) if "*" in word else (word, [word]) for word in words[3:]
    )
    return [name for _, names in matches for name in names]


def checked(arguments: list[str]) -> list[str]:
    """The `check` of what a `run` would search, after its own options were parsed."""
    whole = parser()
    whole.parse_args(arguments)
    subparsers = next(action for action in whole._actions if hasattr(action, "choices") and action.choices)
    check = subparsers.choices["check"]
    _, of_run_alone = argparse.ArgumentParser.parse_known_args(check, arguments[1:])  # ours refuses unknown ones
    return ["check", *(word for word in arguments[1:] if word not in of_run_alone)]


def with_this_python() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
