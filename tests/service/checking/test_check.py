import json
from pathlib import Path

import pytest

from tests.processes import is_alive
from tests.service.submissions import FURNACE, STUDY
from tuner.service.checking import check, demand_of
from tuner.service.checking.study_facts import Facts, refuse_missing
from tuner.service.errors import ServiceError
from tuner.service.model import Demand, Device, Limits

LIMITS = Limits()
CPUS = tuple(Device("cpu", index) for index in range(4))


def study_file(folder: Path, text: str) -> Path:
    file = folder / "parabola.py"
    file.write_text(text)
    return file


def test_the_facts_are_what_the_file_declares(tmp_path: Path) -> None:
    (tmp_path / "ranges.py").write_text("LOW = 0\n")
    text = "from ranges import LOW\n" + STUDY.replace("uniform(0, 1)", "uniform(LOW, 1)")
    facts = check(study_file(tmp_path, text), {"trials": 3, "fixed": None}, LIMITS)
    assert (facts.name, facts.metric, facts.mode, facts.trials) == ("parabola", "loss", "min", 3)
    assert facts.space == {"x": {"domain": "uniform(0, 1)"}}
    assert (facts.kind, facts.each, facts.packed, facts.missing) == ("cpu", 1.0, False, [])
    assert facts.budget["max_epochs"] == 3


def test_a_bad_study_is_refused_with_the_message_of_check(tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as refused:
        check(study_file(tmp_path, STUDY.replace("uniform(0, 1)", "loguniform(0.0, 1)")), {}, LIMITS)
    assert str(refused.value).startswith("loguniform needs low > 0, got low=0")
    with pytest.raises(ServiceError, match=r"^parabola.py does not run: ModuleNotFoundError: No module named 'netz'"):
        check(study_file(tmp_path, "import netz"), {}, LIMITS)
    with pytest.raises(ServiceError, match="trials needs"):
        check(study_file(tmp_path, STUDY), {"trials": -1}, LIMITS)
    with pytest.raises(ServiceError, match="a trial can have at most the CPUs that this machine has"):
        check(study_file(tmp_path, STUDY), {"cpus": 10_000}, LIMITS)


def test_a_file_that_never_ends_is_ended_with_all_it_started(tmp_path: Path) -> None:
    text = f"""\
import os, subprocess, time
started = subprocess.Popen(["sleep", "600"], start_new_session=True)
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{started.pid}}")
time.sleep(600)
"""
    with pytest.raises(ServiceError, match="a study file is loaded within 3 s, got one that takes longer"):
        check(study_file(tmp_path, text), {}, Limits(check_seconds=3))  # its Python has to start in it
    assert [is_alive(int(pid)) for pid in (tmp_path / "pids").read_text().split()] == [False, False]


def test_a_process_that_it_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    text = f"""\
import subprocess
started = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! > {tmp_path}/pid"], start_new_session=True)
started.wait()
{STUDY}"""
    assert check(study_file(tmp_path, text), {}, LIMITS).name == "parabola"
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_memory_has_a_limit_for_one_process_and_for_all_together(tmp_path: Path) -> None:
    limits = Limits(check_bytes=400_000_000)
    with pytest.raises(ServiceError, match=r"MemoryError|a study file is loaded within 0.4 GB of memory"):
        check(study_file(tmp_path, "x = bytearray(1_000_000_000)"), {}, limits)
    hungry = "import time; x = b'1' * 150_000_000; time.sleep(600)"
    text = f"""\
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", {hungry!r}]) for _ in range(3)]
started[0].wait()
"""
    with pytest.raises(ServiceError, match=r"a study file is loaded within 0.4 GB of memory"):
        check(study_file(tmp_path, text), {}, limits)


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.close(0); os.kill(os.getpid(), 11)"])
def test_a_file_that_ends_its_process_is_refused(tmp_path: Path, end: str) -> None:
    with pytest.raises(ServiceError, match=r"^parabola.py needs to be loaded to its end, got a process that ended"):
        check(study_file(tmp_path, f"import os\n{end}"), {}, LIMITS)


def test_facts_that_the_file_makes_up_are_refused(tmp_path: Path) -> None:
    lie = "import os, sys\nfor n in range(3, 20):\n    try: os.write(n, b'%s')\n    except OSError: pass\nos._exit(0)"
    for told in ('{"facts": {"name": 1}}', "[" * 5000):
        with pytest.raises(ServiceError, match=r"parabola\.py"):
            check(study_file(tmp_path, lie % told), {}, LIMITS)


def test_each_kind_of_study_is_submitted_in_its_form(tmp_path: Path) -> None:
    file = tmp_path / "space.py"
    file.write_text(STUDY.replace("trial=train", "trial=tuner.External('furnace')"))
    with pytest.raises(
        ServiceError, match=r"a study file needs trials that the service runs, got .*; submit the study as"
    ):
        check(file, {}, Limits())
    file = tmp_path / "study.json"
    file.write_text(json.dumps(FURNACE))
    found = check(file, {"trials": 7}, Limits(), external=True)
    assert (found.kind, found.trials, demand_of(found, [], None, 4).kind) == ("external", 7, "external")
    file.write_text(json.dumps(FURNACE | {"resources": {"gpus": "auto"}}))
    with pytest.raises(ServiceError, match=r"Resources\.gpus='auto' needs trials that the service runs"):
        check(file, {}, Limits(), external=True)


def test_secrets_of_the_server_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_TOKEN", "geheim")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "geheim")
    text = "import os\nassert 'geheim' not in os.environ.values()\n" + STUDY
    assert check(study_file(tmp_path, text), {}, LIMITS).name == "parabola"


def test_data_that_the_server_lacks_is_named(tmp_path: Path) -> None:
    text = f"""\
import tuner
study = tuner.Study(
    "images",
    trial=tuner.ImageClassifier(data="cifar10", model="resnet18", data_dir={str(tmp_path)!r}),
    space={{"lr": tuner.loguniform(1e-4, 1e-1)}},
)
"""
    facts = check(study_file(tmp_path, text), {"weights": "none"}, LIMITS)
    with pytest.raises(ServiceError, match=r"a study needs data and weights .*, got one that lacks .*CIFAR"):
        refuse_missing(facts)


def facts_with(**changes: object) -> Facts:
    settings: dict[str, object] = {"name": "s", "metric": "m", "mode": "max", "trials": 20, "max_epochs": 1}
    settings |= {"budget": {}, "space": {}, "search": "", "scheduler": "", "trial": "", "kind": "cpu", "each": 1.0}
    return Facts(**{**settings, **changes})  # type: ignore[arg-type]


def test_a_study_gets_what_it_can_use_unless_it_asks_for_a_number() -> None:
    assert demand_of(facts_with(), CPUS, None, None) == Demand("cpu", 4, 1)
    assert demand_of(facts_with(trials=2), CPUS, None, None) == Demand("cpu", 2, 1)
    assert demand_of(facts_with(each=0.5), CPUS, None, 3) == Demand("cpu", 2, 1)
    assert demand_of(facts_with(each=2.0, trials=1), CPUS, None, None) == Demand("cpu", 2, 2)
    assert demand_of(facts_with(each=0.1, packed=True, trials=1), CPUS, None, None) == Demand("cpu", 4, 1)
    assert demand_of(facts_with(), CPUS, 3, None) == Demand("cpu", 3, 3, fixed=True)
    with pytest.raises(ServiceError, match="got one that needs 1 GPU where there are 0"):
        demand_of(facts_with(kind="gpu"), CPUS, None, None)
    with pytest.raises(ServiceError, match=r"at least what a trial gets \(2 CPUs\), .* \(4\), got 5; use 4"):
        demand_of(facts_with(each=2.0), CPUS, 5, None)
    with pytest.raises(ServiceError, match="got 1; use 2"):
        demand_of(facts_with(each=2.0), CPUS, 1, None)


def test_checks_leave_nothing_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ServiceError):
        check(Path("/nowhere/parabola.py"), {}, LIMITS)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
