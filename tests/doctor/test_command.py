"""`tuner doctor` as a user runs it, on this machine and on broken ones."""

import json
import os
import re
import signal
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
import torchvision

from tests.commands import Finished, environment, start, tuner
from tests.mounts import needs_mounts, run_on_tmpfs
from tests.searches import wait_for
from tuner.console.tables import finding_line, findings_summary
from tuner.doctor.checks import CHECKS, HOST, ON_CPU, ON_GPU, SOFTWARE, Finding

NOWHERE = "http://127.0.0.1:9"  # a proxy that refuses


def told(finished: Finished) -> dict[str, Finding]:
    return {record["check"]: Finding(**record) for record in finished.json}


def without_compiler(folder: Path) -> str:
    """A PATH on which there is none."""
    folder.mkdir()
    return str(folder)


@pytest.mark.ray
@pytest.mark.skipif(torch.cuda.is_available(), reason="of a machine without a GPU")
def test_this_machine_is_fit_without_network_compiler_or_gpu(tmp_path: Path) -> None:
    changed = {"PATH": without_compiler(tmp_path / "bin"), "https_proxy": NOWHERE, "CC": ""}
    finished = tuner("doctor", "--json", folder=tmp_path, **changed)
    found = told(finished)
    assert finished.code == 0, finished.out
    assert list(found) == list(
        dict.fromkeys((*HOST, "ray", *SOFTWARE, *ON_CPU, *ON_GPU, "compile", "memory given back"))
    )
    notices = {name for name, finding in found.items() if finding.status == "notice"}
    assert notices - {"shared memory", "disk", "temporary"} == {"network", "compiler"}
    assert found["compiler"].fix == "install gcc"
    for name in ("wheel", "sharing", "graph", "assert", "compile", "memory given back"):
        assert (found[name].status, found[name].said, found[name].where) == ("none here", "none here", "GPU")
    for name in ("ray", *SOFTWARE, *ON_CPU):
        assert found[name].status == "ok", found[name]


@pytest.mark.slow
def test_a_broken_cache_is_a_failure_with_its_fix(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    changed = {"TUNER_CACHE": str(tmp_path / "cache")}
    finished = tuner("doctor", "--only", "cache", folder=tmp_path, **changed)
    assert finished.code == 1
    first, last = finished.out.splitlines()
    assert first == (
        "failed     CPU: cache: the cache can't be used: decoded images need a folder to be kept in, got "
        f"{tmp_path / 'cache'}: File exists; make room, or set TUNER_CACHE to a folder that can be written to"
    )
    assert last == "1 check failed: searches won't work here until this is fixed"


def unfit_torchvision(folder: Path) -> Path:
    """The installed torchvision without its compiled operators, as where it was built for another torch."""
    source = Path(torchvision.__file__).parent
    (folder / "torchvision").mkdir(parents=True)
    for entry in source.iterdir():
        if not entry.name.startswith("_C"):
            (folder / "torchvision" / entry.name).symlink_to(entry)
    return folder


def of_another_release(folder: Path) -> Path:
    """The installed torchvision, which says that it was built for another torch."""
    information = folder / f"torchvision-{metadata.version('torchvision')}.dist-info"
    information.mkdir(parents=True)
    said = metadata.distribution("torchvision").read_text("METADATA") or ""
    other, replaced = re.subn(r"^Requires-Dist: torch\b.*$", "Requires-Dist: torch (==2.9.0)", said, flags=re.MULTILINE)
    assert replaced == 1
    (information / "METADATA").write_text(other)
    return folder


@pytest.mark.slow
def test_torchvision_without_its_operators_is_a_failure_with_its_fix(tmp_path: Path) -> None:
    changed = {"PYTHONPATH": f"{unfit_torchvision(tmp_path / 'shim')}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    finished = tuner("doctor", "--only", "torch", "--only", "fp32", "--json", folder=tmp_path, **changed)
    assert finished.code == 1
    found = told(finished)
    assert "don't work together (RuntimeError: operator torchvision::nms does not exist)" in found["torch"].said
    assert found["torch"].fix.startswith("reinstall torch and torchvision together")
    assert (found["fp32"].status, found["fp32"].said) == ("skipped", "needs torch, which failed")


@pytest.mark.slow
def test_torchvision_of_another_release_is_a_failure_with_its_fix(tmp_path: Path) -> None:
    changed = {"PYTHONPATH": f"{of_another_release(tmp_path / 'shim')}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    finished = tuner("doctor", "--only", "torch", "--json", folder=tmp_path, **changed)
    assert finished.code == 1
    found, version = told(finished)["torch"], metadata.version("torchvision")
    assert found.said == f"torchvision {version} needs torch ==2.9.0, got {metadata.version('torch')}"
    assert found.fix == f"pip install 'torch==2.9.0' torchvision=={version.split('+')[0]}"


@needs_mounts
@pytest.mark.slow
def test_a_full_disk_is_a_failure_with_its_fix(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    asked = ("--storage", full / "runs", "--only", "disk", "--only", "temporary", "--only", "cache", "--json")
    doctor = (sys.executable, "-m", "tuner", "doctor", *asked)
    done = run_on_tmpfs("1m", full, *doctor, env=environment(TUNER_CACHE=f"{full}/cache"), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = told(Finished(done.returncode, done.stdout, done.stderr))
    assert found["disk"].said == f"{full}/runs has to take 8 MiB, got an error from {full} (No space left on device)"
    assert found["disk"].fix == "free some of it, or choose another folder with --storage"
    assert found["temporary"].status in ("ok", "notice")
    assert found["cache"].status == "failed"
    assert str(full) in found["cache"].said


def test_data_that_is_a_file_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    finished = tuner("doctor", "--only", "data folder", folder=tmp_path)
    assert finished.code == 1
    expected = "data needs a folder that can be read, got 'data'; choose another with --data-dir"
    assert finished.out.splitlines()[0] == f"failed     this machine: data folder: {expected}"


def broken_torch(folder: Path, code: str) -> dict[str, str]:
    """A torch whose import ends as `code` does."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(code)
    return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def test_a_torch_that_crashes_when_it_is_imported_is_a_finding(tmp_path: Path) -> None:
    changed = broken_torch(tmp_path / "shim", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    finished = tuner("doctor", "--only", "torch", "--only", "fp32", "--json", folder=tmp_path, **changed)
    assert finished.code == 1
    found = told(finished)
    assert found["torch"].said == "the process that should have made this check was ended by SIGSEGV"
    assert found["torch"].fix.startswith("reinstall torch and torchvision together")
    assert found["fp32"].status == "skipped"


def test_ctrl_c_ends_it_and_its_processes_at_once(tmp_path: Path) -> None:
    changed = broken_torch(tmp_path / "shim", f"open({str(tmp_path / 'begun')!r}, 'w')\nimport time\ntime.sleep(600)\n")
    process = start("doctor", "--only", "torch", folder=tmp_path, **changed)
    wait_for((tmp_path / "begun").exists)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, "", "tuner: interrupted\n")


def test_a_check_that_there_is_not_is_refused(tmp_path: Path) -> None:
    finished = tuner("doctor", "--only", "luck", folder=tmp_path)
    assert finished.code == 2
    assert "luck" in finished.err


def test_every_check_has_a_function_and_a_fix() -> None:
    from pkgutil import resolve_name

    for check in CHECKS.values():
        assert callable(resolve_name(check.function))
        assert check.fix
    assert {*HOST, "ray", *SOFTWARE, *ON_CPU, *ON_GPU, "compile"} == set(CHECKS)


def test_a_line_stays_a_line() -> None:
    finding = Finding("notice", "two\nlines \x1b[31m", "do\nthis", "check", "here")
    assert finding_line(finding) == "notice     here: check: two lines \\x1b[31m; do this"
    assert findings_summary([finding]) == "searches will work here (1 notice)"
    assert findings_summary([]) == "searches will work here (nothing to fix)"
    assert json.loads(json.dumps(finding.record()))["where"] == "here"
