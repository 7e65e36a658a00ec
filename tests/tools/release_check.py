"""Builds the release of a commit into dist/, tries it as its users will, and names the command that publishes it.

    make release-check [TAG=v0.2.0rc1]

The wheel and the sdist are made from an export of the commit: what isn't committed can't get into them. Each extra is
installed from the wheel into an environment of its own, by what the wheel says of it and from the registry that pip
uses. Nothing is shared between the installation without extras and that with `train`. The others see one of these two,
by a .pth file: `service`, which is used without Ray and torch, the first; all that need a search the second, so that
PyTorch, with CUDA 6 GB, is installed once. pip then installs what the extra adds. So this finds an extra that can't be
installed or lacks a package, but not what an extra would lack without `train`, with which the documents install it.

The extra `dev` isn't tried: `make` has made the environment in which this runs from it.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trove_classifiers
from markdown_it import MarkdownIt
from packaging.metadata import Metadata

from tuner.machine.version import __version__

ROOT = Path(__file__).parent.parent.parent
PARTS = ("tuner", "pyproject.toml", "README.md", "LICENSE")  # that a package is made from
IN_DIST_INFO = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE")
IN_EGG_INFO = ("PKG-INFO", "SOURCES.txt", "dependency_links.txt", "entry_points.txt", "requires.txt", "top_level.txt")
WORK = ROOT / "build" / "release-check"  # some gigabytes: a temporary folder may lie in memory
NOT_FROM_HERE = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

_RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)\s]+)\)")

SHORTER = ("--trials", "4", "--set", "image_size=8")  # of the demo's ten
EXTRAS = {  # what each is for, as arguments of Python, in a folder beside the demo's
    "service": (
        "-c",
        "import importlib, pkgutil, tuner.service as room\n"
        "for module in pkgutil.walk_packages(room.__path__, 'tuner.service.'): importlib.import_module(module.name)",
    ),
    "cluster": ("-c", "import ray.dashboard.head, ray.dashboard.modules.job.job_head; import ray.job_submission"),
    "optuna": ("-m", "tuner", "export", "../demo/runs", "--to", "optuna", "study.db"),
    "onnx": ("-m", "tuner", "export", "../demo/runs", "--to", "onnx", "onnx"),
    "openvino": ("-m", "tuner", "export", "../demo/runs", "--to", "openvino", "openvino"),
    "timm": ("-c", "import tuner.train.models.timms, tuner.storage.hub, timm; timm.create_model('resnet10t')"),
    "hf": ("-c", "import tuner, tuner.train.models.hubs; tuner.TransformersReport()"),
    "heic": (
        "-c",
        "from PIL import Image; from tuner.trial import pixels\n"
        "Image.new('RGB', (64, 64)).save('photo.heic'); Image.open('photo.heic', formats=pixels.FORMATS).load()",
    ),
    "mlflow": ("-c", "import tuner.mirrors.mlflow, mlflow; mlflow.MlflowClient('http://127.0.0.1:9')"),
    "lightning": ("-c", "import tuner; tuner.LightningReport()"),
    "bench": ("-c", "import onnxruntime"),
}


class RefusalError(Exception):
    """No release of this commit; one sentence."""


class CheckError(Exception):
    """A check found a fault; one sentence, and what a command printed."""


def run(*command: str | Path, folder: Path, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    """A command without the variables that lead a Python to this checkout; raises CheckError if it ends with another code."""
    environment = {name: value for name, value in os.environ.items() if name not in NOT_FROM_HERE} | more
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != code:
        printed = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise CheckError(f"{shlex.join(map(str, command))} ended with {done.returncode}, not {code}:\n{printed}")
    return done


# What a release is made from


def git(*arguments: str, checkout: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True, text=True).stdout.strip()


def check_commit(checkout: Path) -> None:
    """Raise RefusalError if files differ from the commit, or are in none."""
    changed = [line.split(maxsplit=1)[1] for line in git("status", "--porcelain", checkout=checkout).splitlines()]
    if changed:
        rest = f" and {len(changed) - 3} others" if len(changed) > 3 else ""
        raise RefusalError(
            f"a release is made from a commit, got {', '.join(changed[:3])}{rest} that no commit has; commit, or put "
            "aside with git stash --include-untracked"
        )


def check_names(checkout: Path, version: str, tag: str | None) -> None:
    """Raise RefusalError if the tag isn't the version's, marks another commit, or the changelog has no section of it."""
    wanted = f"v{version}"
    if tag is not None and tag != wanted:
        raise RefusalError(
            f"the tag of version {version} is {wanted}, got {tag}; tag {wanted}, or change tuner/machine/version.py"
        )
    if git("tag", "--list", wanted, checkout=checkout):
        tagged, here = (git("rev-parse", f"{name}^{{commit}}", checkout=checkout) for name in (wanted, "HEAD"))
        if tagged != here:
            raise RefusalError(
                f"a version is released once, got {wanted} at commit {tagged[:8]} and this one, {here[:8]}; give "
                "tuner/machine/version.py a new version"
            )
    if not re.search(rf"^## {re.escape(version)}\b", (checkout / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        raise RefusalError(
            f"CHANGELOG.md needs a section of each release, got no line '## {version}'; name it as this release"
        )


def export(checkout: Path, folder: Path, tag: str) -> Path:
    """What a package is made from, as the commit has it, in a new folder."""
    packed = subprocess.run(["git", "archive", "HEAD", *PARTS], cwd=checkout, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    if repository := project.get("urls", {}).get("Repository"):
        readme = folder / "README.md"
        readme.write_text(with_addresses(readme.read_text("utf-8"), repository, tag), "utf-8")
    return folder


def with_addresses(readme: str, repository: str, tag: str) -> str:
    """README with links that also work on the project's page of a registry, which has no other file of the repository."""
    return _RELATIVE.sub(
        lambda link: f"{link[1]}{link[2]}({repository}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})", readme
    )


# Wheel and sdist


def build(source: Path, out: Path, seconds: str, *, isolated: bool = True) -> str:
    """Build wheel and sdist of a source tree, whose files get that time; `isolated` installs what builds them by pip.

    Raises CheckError if the tree and the sdist make different wheels.
    """
    command = [sys.executable, "-m", "build", *([] if isolated else ["--no-isolation"])]
    run(*command, "--outdir", out, ".", folder=source, SOURCE_DATE_EPOCH=seconds)
    with tempfile.TemporaryDirectory() as direct:
        run(*command, "--wheel", "--outdir", direct, ".", folder=source, SOURCE_DATE_EPOCH=seconds)
        (wheel,), (other,) = out.glob("*.whl"), Path(direct).glob("*.whl")
        differing = {*_record(wheel)} ^ {*_record(other)}
    if differing:
        names = sorted({line.partition(",")[0] for line in differing})
        raise CheckError(f"the sdist needs to make the same wheel as the commit, got others: {', '.join(names[:9])}")
    return f"{wheel.name}: the sdist makes the same wheel as the commit"


def _record(wheel: Path) -> list[str]:
    """A line per file: name, SHA-256 and bytes."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        return archive.read(name).decode().splitlines()


def compare_files(wheel: Path, sdist: Path, sources: set[str]) -> str:
    """How many files there are; raises CheckError if wheel or sdist has others than it should.

    `sources` are the files below tuner/, by their paths in the checkout.
    """
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if not name.endswith("/")}
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    dist_info = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"
    egg_info = f"{wheel.name.partition('-')[0]}.egg-info"
    _compare(wheel.name, in_wheel, sources | {f"{dist_info}/{name}" for name in IN_DIST_INFO})
    generated = {"PKG-INFO", "setup.cfg", *(f"{egg_info}/{name}" for name in IN_EGG_INFO)}
    _compare(sdist.name, in_sdist, sources | {*PARTS[1:]} | generated)
    data = len([name for name in sources if not name.endswith(".py")])
    return f"{len(in_wheel)} files in the wheel, {len(in_sdist)} in the sdist; tuner/ has {len(sources)}, {data} of them data"


def _compare(what: str, got: set[str], meant: set[str]) -> None:
    if got != meant:
        lacks, beyond = ", ".join(sorted(meant - got)[:9]), ", ".join(sorted(got - meant)[:9])
        raise CheckError(
            f"{what} needs the files of tuner/ and no others, got it without: {lacks or '-'}; and with: {beyond or '-'}; "
            "see package-data in pyproject.toml"
        )


def metadata_of(wheel: Path) -> Metadata:
    """What a wheel says of itself; raises CheckError for what a registry refuses, by the library that has its rules."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name)
    try:
        return Metadata.from_email(text, validate=True)
    except ExceptionGroup as error:
        raise CheckError(f"a registry refuses this metadata: {'; '.join(map(str, error.exceptions))}") from error


def check_metadata(wheel: Path) -> str:
    """What the project's page will show; raises CheckError if that isn't what it should be."""
    metadata = metadata_of(wheel)
    unknown = {*(metadata.classifiers or ())} - trove_classifiers.classifiers
    if unknown:
        raise CheckError(f"classifiers need to be the registry's, got {', '.join(sorted(unknown))}")
    if str(metadata.version) != __version__ or metadata.description_content_type != "text/markdown":
        raise CheckError(
            f"needs {__version__} and Markdown, got {metadata.version}, {metadata.description_content_type}"
        )
    if untried := {*(metadata.provides_extra or ())} ^ {*EXTRAS, "train", "dev"}:
        raise CheckError(
            f"each extra needs a use in EXTRAS of {Path(__file__).name}, got a difference: {', '.join(sorted(untried))}"
        )
    readme = metadata.description or ""
    html = MarkdownIt("commonmark").enable("table").render(readme)
    if not all(f"<{tag}>" in html for tag in ("h1", "table", "pre")):
        raise CheckError("README needs to render as Markdown with a heading, a table and code, got one that doesn't")
    links = len(_RELATIVE.findall(readme))
    state = (
        f"{links} links lead nowhere on the project's page until [project.urls] has Repository"
        if links
        else "all links lead on"
    )
    return f"{metadata.name} {metadata.version}, {metadata.license_expression}; README renders, {state}"


# Installations


@dataclass(frozen=True)
class Installation:
    """A virtual environment; `below` is another one, whose packages it sees after its own."""

    folder: Path
    below: "Installation | None" = None

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The folder of its packages."""
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder)}))

    def install(self, wheel: Path, extra: str | None) -> str:
        """By pip, with all that it needs; how many packages that adds."""
        venv.create(self.folder, with_pip=False)
        if self.below is not None:
            (self.packages / "below.pth").write_text(f"import site; site.addsitedir({str(self.below.packages)!r})\n")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        wanted = f"{wheel}[{extra}]" if extra else wheel
        run(*pip, "install", "--quiet", "--no-compile", wanted, folder=self.folder)
        run(*pip, "check", folder=self.folder)
        return f"packages added: {len([*self.packages.glob('*.dist-info')])}; all fit together"

    def tuner(self, *arguments: str | Path, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        return run(self.python, "-m", "tuner", *arguments, folder=folder, code=code)


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def try_without_extras(installed: Installation, outside: Path) -> str:
    """A light installation: its version, and what it says of a study that needs more."""
    folder = empty(outside / "light")
    shutil.copy(ROOT / "search_spaces" / "digits.py", folder)
    where = run(installed.python, "-c", "import tuner; print(tuner.__file__)", folder=folder).stdout.strip()
    if not Path(where).is_relative_to(installed.folder):
        raise CheckError(f"tuner needs to be the wheel's, got {where}")
    version = run(installed.folder / "bin" / "tuner", "--version", folder=folder).stdout
    if version != f"tuner {__version__}\n":
        raise CheckError(f"tuner --version needs to print {__version__}, got {version!r}")
    for verb in ("check", "run"):
        said = installed.tuner(verb, "digits.py", folder=folder, code=2).stderr
        if not re.fullmatch(r"tuner: .* pip install 'image-tuner\[train\]'.*\n", said):
            raise CheckError(f"without the extra train, tuner {verb} needs to name it, got {said!r}")
    return f"tuner {__version__}; check and run name the extra train"


def try_demo(installed: Installation, outside: Path) -> str:
    """A search with the demo's study, in an empty folder, and its outcome."""
    folder = empty(outside / "demo")
    shutil.copy(ROOT / "search_spaces" / "digits.py", folder)
    installed.tuner("check", "digits.py", folder=folder)
    installed.tuner("run", "digits.py", *SHORTER, folder=folder)
    (of_demo,) = (folder / "runs" / "digits").iterdir()
    shown = json.loads(installed.tuner("show", of_demo, "--json", folder=folder).stdout)
    best, rows = shown["best"], (of_demo / "trials.csv").read_text("utf-8").splitlines()[1:]
    accuracy, report = best["value"], (of_demo / "report.html").read_text("utf-8")
    weights = of_demo / "best" / "model.safetensors"
    if (
        shown["trials"]["failed"]
        or len(rows) != 4
        or accuracy < 0.5
        or best["trial_id"] not in report
        or not weights.is_file()
    ):
        raise CheckError(f"the demo needs 4 trials, a winner and a report, got {shown}")
    return f"{len(rows)} trials, val_accuracy {accuracy:.3f}, report.html has {len(report) >> 10} kB"


def try_extra(extra: str, wheel: Path, below: Installation, outside: Path) -> str:
    """Install one extra, use it, and delete the installation."""
    installed = Installation(WORK / extra, below)
    packages = installed.install(wheel, extra)
    run(installed.python, *EXTRAS[extra], folder=empty(outside / extra))
    shutil.rmtree(installed.folder)
    return packages


# The command


class Table:
    """A line for each check, printed when it ends."""

    def __init__(self) -> None:
        self.failed = False

    def check(self, name: str, work: Callable[..., str], *arguments: Any) -> bool:
        """Whether it passed."""
        began = time.monotonic()
        try:
            state, text = "passed", work(*arguments)
        except CheckError as failure:
            state, text, self.failed = "FAILED", str(failure), True
        print(f"{state}  {name:22}{time.monotonic() - began:5.0f} s  {text}", flush=True)
        return state == "passed"


def check_release(dist: Path, outside: Path) -> bool:
    """Build and try the release of the commit; whether all checks passed."""
    table = Table()
    source = export(ROOT, WORK / "source", f"v{__version__}")
    sources = {path.relative_to(source).as_posix() for path in (source / "tuner").rglob("*") if path.is_file()}
    committed = git("log", "-1", "--format=%ct", checkout=ROOT)
    if not table.check("wheel and sdist", build, source, dist, committed):
        return False
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    table.check("files", compare_files, wheel, sdist, sources)
    table.check("metadata", check_metadata, wheel)

    with ThreadPoolExecutor(2) as pool:  # pip keeps one core busy
        running: list[Future[Any]] = [pool.submit(check_light, table, wheel, outside)]
        train = Installation(WORK / "train")
        if table.check("train", train.install, wheel, "train") and table.check("  the demo", try_demo, train, outside):
            others = sorted(EXTRAS.keys() - {"service"})
            running += [pool.submit(table.check, name, try_extra, name, wheel, train, outside) for name in others]
        for one in running:
            one.result()
    return not table.failed


def check_light(table: Table, wheel: Path, outside: Path) -> None:
    """What is used without Ray and torch."""
    light = Installation(WORK / "light")
    if table.check("without extras", light.install, wheel, None):
        table.check("  used", try_without_extras, light, outside)
        table.check("service", try_extra, "service", wheel, light, outside)


def main() -> int:
    """0 if a person only has to push, 1 if a check failed, 2 if there is no release of this commit."""
    tag, dist = os.environ.get("TAG") or None, ROOT / "dist"
    try:
        check_commit(ROOT)
        check_names(ROOT, __version__, tag)
    except RefusalError as refused:
        print(f"release-check: {refused}", file=sys.stderr)
        return 2
    for folder in (WORK, dist):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        with tempfile.TemporaryDirectory() as outside:
            passed = check_release(dist, Path(outside))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    if not passed:
        print("no release: a check failed", file=sys.stderr)
        return 1
    named = f"v{__version__}"
    marked = f"git tag {named} && " if not git("tag", "--list", named, checkout=ROOT) else ""
    print(f"\nWhat a person has to do, if this is to be published:\n\n  {marked}git push --atomic origin HEAD {named}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
