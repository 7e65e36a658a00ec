"""What is built for a release installs elsewhere and works there."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import tuner
from tests.docs.blocks import ROOT

PARTS = ("tuner", "pyproject.toml", "README.md", "LICENSE")  # that a package is made from


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was made from it."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "clone").mkdir()
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / "clone" / part)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), "."]
    subprocess.run(command, cwd=folder / "clone", env=outside_the_clone(), check=True, capture_output=True, timeout=300)
    return folder / "dist"


@pytest.fixture(scope="module")
def elsewhere(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; what the wheel depends on comes from this environment."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (wheel,) = built.glob("*.whl")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True, timeout=300)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def outside_the_clone() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(python: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments], cwd=folder, env=outside_the_clone(), capture_output=True, text=True, check=False
    )


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tuner").rglob("*.py")}
    assert sources <= names
    assert {"tuner/py.typed", "tuner/trial/models.json", "tuner/html_report/assets/run.html"} <= names
    assert {name.partition("/")[0] for name in names} == {"tuner"}


def test_the_sdist_has_what_the_wheel_is_made_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tuner/__init__.py", "tuner/trial/models.json"} <= names


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
