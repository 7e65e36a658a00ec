"""What is built for a release installs elsewhere and works there."""

import ast
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import tuner
from tests.docs.blocks import ROOT
from tests.tools.release_check import PARTS, build, check_metadata, compare_files

WITH_OTHERS = {
    "anyio": "fastapi",
    "huggingface-hub": "timm",
    "pydantic": "fastapi",
    "pydantic-core": "fastapi",
    "starlette": "fastapi",
}
IN_NOTEBOOKS = {"ipython"}  # imported only where it runs


def sources() -> list[str]:
    """What a package is made from, as the next commit would have it; paths in the clone."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PARTS]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was made from it, as `make release-check` builds them."""
    folder = tmp_path_factory.mktemp("package")
    for name in sources():
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "clone" / name)
    build(folder / "clone", folder / "dist", "1700000000", isolated=False)
    return folder / "dist"


@pytest.fixture(scope="module")
def elsewhere(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; what the wheel depends on comes from this environment."""
    python, packages = with_the_wheel(built, tmp_path_factory.mktemp("elsewhere"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture(scope="module")
def light(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and what it needs without extras, as `pip install image-tuner` makes it."""
    python, packages = with_the_wheel(built, tmp_path_factory.mktemp("light"))
    for name in needed("image-tuner", metadata.distributions(path=[str(packages)])):
        for entry in {file.parts[0] for file in metadata.distribution(name).files or () if file.parts[0] != ".."}:
            if not (packages / entry).exists():
                (packages / entry).symlink_to(Path(sysconfig.get_path("purelib")) / entry)
    return python


def with_the_wheel(built: Path, folder: Path) -> tuple[Path, Path]:
    """The Python of a new environment with the wheel alone, and the folder of its packages."""
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=300)
    return python, Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))


def needed(name: str, among: Iterable[metadata.Distribution]) -> set[str]:
    """What a distribution needs without its extras, and what these need; names of those that are installed here."""
    found: set[str] = set()
    waiting = [text for one in among if one.name == name for text in one.requires or ()]
    assert waiting
    while waiting:
        requirement = Requirement(waiting.pop())
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and requirement.name not in found:
            found.add(requirement.name)
            waiting += metadata.requires(requirement.name) or ()
    return found


def outside_the_clone() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(python: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments], cwd=folder, env=outside_the_clone(), capture_output=True, text=True, check=False
    )


def test_wheel_and_sdist_have_the_files_of_the_package_and_no_others(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    compare_files(wheel, sdist, {name for name in sources() if name.startswith("tuner/")})


def test_a_registry_takes_the_metadata(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert f"image-tuner {tuner.__version__}, Apache-2.0; README renders" in check_metadata(wheel)


def test_each_library_that_tuner_imports_is_declared() -> None:
    declared = {
        Requirement(text).name.lower()
        for text in metadata.requires("image-tuner") or ()
        if 'extra == "dev"' not in text
    }
    distributions = metadata.packages_distributions()
    undeclared = {
        f"{name} in {path}"
        for path in sources()
        if path.endswith(".py")
        for name in imported((ROOT / path).read_text(encoding="utf-8"))
        if not {WITH_OTHERS.get(one, one) for one in map(normal, distributions.get(name, [name]))}
        & (declared | IN_NOTEBOOKS)
    }
    assert undeclared == set()


def imported(source: str) -> set[str]:
    """The libraries whose modules a module imports, also inside functions."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {
        name
        for node in nodes
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"tuner"}


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.slow
def test_the_installed_package_says_its_version_and_checks_a_study(elsewhere: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "search_spaces" / "digits.py", tmp_path)
    where = run(elsewhere, "-c", "import tuner; print(tuner.__file__)", folder=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(elsewhere.parents[1])  # not the clone
    version = run(elsewhere, "-m", "tuner", "--version", folder=tmp_path)
    assert (version.returncode, version.stdout) == (0, f"tuner {tuner.__version__}\n")
    checked = run(elsewhere, "-m", "tuner", "check", "digits.py", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "val_accuracy" in checked.stdout
    assert (elsewhere.parent / "tuner").is_file()


# A light install: no extra, so neither Ray nor torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of an earlier version of tuner in `runs`, and with their study's file."""
    folder = tmp_path_factory.mktemp("results")
    shutil.copy(ROOT / "tests/history/format_1/study.py", folder)
    for name in ("2026-01-01T10-00-00", "2026-01-02T10-00-00"):
        run = shutil.copytree(ROOT / "tests/history/format_1", folder / "runs" / "curve" / name)
        info = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**info, "study_file": str(folder / "study.py")}))
    return folder


VERBS = """
import sys
from tuner.cli import main

print([main(line.split()) for line in sys.argv[1:]], file=sys.stderr)
"""


@pytest.mark.slow
def test_a_light_install_reads_results(light: Path, folder: Path) -> None:
    verbs = [
        *("runs", "show runs", "show runs --trial 0", "show runs --json", "report runs", "refine runs -o next.py"),
        "compare runs/curve/2026-01-01T10-00-00 runs --html both.html",
        *("export runs --to csv tables", "export runs --to parquet tables", "export runs --to tensorboard events"),
        "check study.py",
    ]
    finished = run(light, "-c", VERBS, *verbs, folder=folder)
    assert finished.stderr == f"{[0] * len(verbs)}\n", finished.stderr
    assert "study = Study(" in (folder / "next.py").read_text()
    assert all("plotly" in path.read_text() for path in [folder / "both.html", *folder.glob("runs/*/*/report.html")])
    libraries = ("ray", "torch", "torchvision", "wandb", "hyperopt", "pynvml", "obstore")
    code = f"from importlib.util import find_spec; print([name for name in {libraries} if find_spec(name)])"
    assert run(light, "-c", code, folder=folder).stdout == "[]\n"


@pytest.mark.slow
def test_a_light_install_reads_results_in_python(light: Path, folder: Path) -> None:
    code = "import tuner; run = tuner.load_run(); figure = run.plot.history(); print(len(run.top(3)), len(figure.data) > 0)"
    finished = run(light, "-c", code, folder=folder)
    assert finished.stdout == "3 True\n", finished.stderr


@pytest.mark.slow
def test_a_light_install_refuses_what_needs_training(light: Path, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    verbs = ["run study.py", "resume runs", "predict runs image.png", "doctor"]
    finished = run(light, "-c", VERBS, *verbs, folder=folder)
    fix = "pip install 'image-tuner[train]'"
    assert finished.stderr.splitlines() == [
        f"tuner: a search needs Ray and torch, got an installation without ray, torch, torchvision; {fix}",
        f"tuner: a search needs Ray and torch, got an installation without ray, torch, torchvision; {fix}",
        f"tuner: a prediction needs torch, got an installation without torch, torchvision; {fix}",
        f"tuner: the check of a machine needs Ray and torch, got an installation without ray, torch, torchvision; {fix}",
        "[2, 2, 2, 2]",
    ]
    assert finished.stdout == ""
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("call", ["run('study.py')", "resume('runs')", "load_model('runs')"])
@pytest.mark.slow
def test_a_light_install_refuses_it_in_python_too(light: Path, folder: Path, call: str) -> None:
    last = run(light, "-c", f"import tuner; tuner.{call}", folder=folder).stderr.splitlines()[-1]
    assert last.startswith("tuner.errors.StudyError: a "), last
    assert last.endswith("pip install 'image-tuner[train]'")


WINDOWS = """
import os, sys

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("geteuid", "getuid", "killpg", "nice", "setsid", "sysconf", "sched_getaffinity", "O_NOFOLLOW"):
    delattr(os, name)
"""


@pytest.mark.slow
def test_results_are_read_where_python_lacks_what_windows_lacks(light: Path, folder: Path) -> None:
    verbs = ["runs", "show runs", "report runs", "check study.py", "refine runs -o another.py --trust"]
    finished = run(light, "-c", WINDOWS + VERBS, *verbs, folder=folder)
    assert finished.stderr == "[0, 0, 0, 0, 0]\n", finished.stderr


@pytest.mark.slow
def test_code_whose_owner_windows_does_not_show_is_not_run(light: Path, folder: Path) -> None:
    finished = run(light, "-c", WINDOWS + VERBS, "refine runs -o untrusted.py", folder=folder)
    assert "which has an owner that Windows doesn't show; read its study.py, and if you trust it" in finished.stderr
    assert not (folder / "untrusted.py").exists()
