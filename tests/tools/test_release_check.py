"""What a release is refused for, what its files are compared with, and the workflow that publishes it."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import tuner
from tests.tools.release_check import (
    EXTRAS,
    IN_DIST_INFO,
    IN_EGG_INFO,
    PARTS,
    ROOT,
    CheckError,
    RefusalError,
    check_commit,
    check_metadata,
    check_names,
    compare_files,
    export,
    git,
)

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*"))
BESIDE_PYTHON = Path(sys.executable).parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit that has all that a release is made from."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for part in (*PARTS[1:], "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / part, folder)
    (folder / "tuner").mkdir()
    (folder / "tuner" / "__init__.py").write_text("")
    git("init", "--quiet", checkout=folder)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git("add", ".", checkout=folder)
    git("-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "--quiet", "-m", "more", checkout=folder)


def test_a_release_is_made_from_what_is_committed(checkout: Path, tmp_path: Path) -> None:
    check_commit(checkout)
    (checkout / "runs").mkdir()
    (checkout / "runs" / "ignored").write_text("")
    check_commit(checkout)
    (checkout / "tuner" / "new.py").write_text("")
    (checkout / "README.md").write_text("edited")
    with pytest.raises(
        RefusalError, match=r"^a release is made from a commit, got README.md, tuner/new.py that no commit has;"
    ):
        check_commit(checkout)
    made = export(checkout, tmp_path / "made", "v1")
    assert sorted(path.name for path in made.rglob("*") if path.is_file()) == [
        *("LICENSE", "README.md", "__init__.py", "pyproject.toml")
    ]
    assert (made / "README.md").read_text() == (ROOT / "README.md").read_text()


def test_a_declared_repository_makes_the_links_of_readme_absolute(checkout: Path, tmp_path: Path) -> None:
    pyproject = checkout / "pyproject.toml"
    urls = '[project.urls]\nRepository = "https://code.example/o/r"\n'
    pyproject.write_text(pyproject.read_text() + urls)
    commit(checkout)
    readme = (export(checkout, tmp_path / "made", "v1") / "README.md").read_text()
    assert "](https://code.example/o/r/blob/v1/docs/how-to/install.md)" in readme
    assert "](https://code.example/o/r/raw/v1/docs/images/report.png)" in readme
    assert not re.search(r"\]\((?!https?://|#)", readme)


def test_tag_version_and_changelog_belong_together(checkout: Path) -> None:
    version = tuner.__version__
    check_names(checkout, version, None)
    check_names(checkout, version, f"v{version}")
    with pytest.raises(RefusalError, match=rf"^the tag of version {version} is v{version}, got v9; "):
        check_names(checkout, version, "v9")
    with pytest.raises(RefusalError, match=r"^CHANGELOG.md needs a section of each release, got no line '## 9.9.9';"):
        check_names(checkout, "9.9.9", None)
    git("tag", f"v{version}", checkout=checkout)
    check_names(checkout, version, None)
    (checkout / "LICENSE").write_text("")
    commit(checkout)
    with pytest.raises(RefusalError, match=rf"^a version is released once, got v{version} at commit "):
        check_names(checkout, version, None)


def archives(folder: Path, wheel: list[str], sdist: list[str]) -> tuple[Path, Path]:
    """A wheel and an sdist with those files beside what is generated."""
    files = folder / "image_tuner-1-py3-none-any.whl", folder / "image_tuner-1.tar.gz"
    with zipfile.ZipFile(files[0], "w") as archive:
        for name in [*wheel, *(f"image_tuner-1.dist-info/{name}" for name in IN_DIST_INFO)]:
            archive.writestr(name, "")
    with tarfile.open(files[1], "w:gz") as archive:
        generated = ["PKG-INFO", "setup.cfg", *(f"image_tuner.egg-info/{name}" for name in IN_EGG_INFO)]
        for name in [*sdist, *PARTS[1:], *generated]:
            archive.addfile(tarfile.TarInfo(f"image_tuner-1/{name}"))
    return files


def test_a_file_that_is_missing_or_too_many_is_named(tmp_path: Path) -> None:
    meant = ["tuner/a.py", "tuner/b.json"]
    assert compare_files(*archives(tmp_path, meant, meant), {*meant}).startswith(
        "8 files in the wheel, 13 in the sdist;"
    )
    with pytest.raises(CheckError, match=r"any.whl needs .* without: tuner/b.json; and with: -; see package-data"):
        compare_files(*archives(tmp_path, meant[:1], meant), {*meant})
    with pytest.raises(CheckError, match=r"tar.gz needs .* without: -; and with: tests/test_a.py;"):
        compare_files(*archives(tmp_path, meant, [*meant, "tests/test_a.py"]), {*meant})


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("Classifier: Topic :: Nothing", r"^classifiers need to be the registry's, got Topic :: Nothing"),
        ("Version: 0.0.1", f"^needs {tuner.__version__} and Markdown, got 0.0.1, "),
        ("License-Expression: mine", "^a registry refuses this metadata: .*license-expression"),
        ("Provides-Extra: another", "^each extra needs a use in EXTRAS .*: another"),
    ],
)
def test_metadata_that_a_registry_refuses(tmp_path: Path, line: str, sentence: str) -> None:
    field = line.partition(":")[0]
    lines = ["Metadata-Version: 2.4", "Name: image-tuner", f"Version: {tuner.__version__}"]
    lines += [
        "Description-Content-Type: text/markdown",
        *(f"Provides-Extra: {name}" for name in (*EXTRAS, "train", "dev")),
    ]
    kept = [one for one in lines if field in ("Classifier", "Provides-Extra") or not one.startswith(f"{field}:")]
    wheel = tmp_path / "image_tuner-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("image_tuner-1.dist-info/METADATA", "\n".join([*kept, line, "", "# a"]))
    with pytest.raises(CheckError, match=sentence):
        check_metadata(wheel)


# .github/workflows


def workflow(path: Path) -> dict[str, Any]:
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on": read.pop(True), **read}  # YAML 1.1 reads the key `on` as true


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_fits_the_schema_and_has_no_known_weakness(path: Path) -> None:
    for command in (
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"],
        ["zizmor", "--offline", "--no-progress", "--persona", "pedantic"],
    ):
        done = subprocess.run(
            [BESIDE_PYTHON / command[0], *command[1:], path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_needs_jobs_and_targets_of_make_that_are_there(path: Path) -> None:
    jobs = workflow(path)["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert {job["needs"] for job in jobs.values() if "needs" in job} <= jobs.keys()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {name for step in steps for name in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))} <= targets
    assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in steps if "uses" in step)


def test_what_is_published_has_been_checked_and_no_secret_is_stored() -> None:
    release = workflow(ROOT / ".github" / "workflows" / "release.yml")
    check, publish = release["jobs"]["check"], release["jobs"]["publish"]
    assert (release["on"], release["permissions"]) == ({"push": {"tags": ["v*"]}}, {})
    assert (check["permissions"], publish["permissions"]) == ({"contents": "read"}, {"id-token": "write"})
    assert (publish["needs"], publish["environment"]) == ("check", "release")
    assert [step["run"] for step in check["steps"] if "run" in step] == ['make release-check TAG="$GITHUB_REF_NAME"']
    stored, fetched = check["steps"][-1]["with"], publish["steps"][0]["with"]
    assert (stored["name"], stored["path"]) == (fetched["name"], fetched["path"]) == ("dist", "dist/")
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        *("actions/download-artifact", "pypa/gh-action-pypi-publish")
    ]
    assert publish["steps"][1]["with"] == {"attestations": True}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_each_extra_but_dev_is_tried() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EXTRAS, "train", "dev"} == {*declared}
