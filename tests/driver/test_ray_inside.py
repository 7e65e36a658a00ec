"""The contract with Ray's inside: each private name is in the table, is there in its shape, and is used nowhere else."""

import ast
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import ray.tune.tune
from ray._private.workers import setup_worker

import tuner
from tests.commands import ROOT, environment
from tests.end_to_end.test_failures import LOOPBACK, listening
from tests.searches import ray_process
from tuner.doctor.checks import Subject
from tuner.driver import local_ray
from tuner.driver.cluster import ray_starts
from tuner.driver.local_ray import LocalRay
from tuner.driver.ray_inside import names
from tuner.driver.ray_inside.names import TABLE, check_needed, exists, notices, patched, present
from tuner.driver.ray_inside.start import Workers, only_reachable_here
from tuner.errors import StudyError
from tuner.worker.ray_inside.begin import FOR_RAYS_SETUP

PACKAGE = Path(tuner.__file__).parent
INSIDE = (PACKAGE / "driver" / "ray_inside", PACKAGE / "worker" / "ray_inside")
NAMES = {name for row in TABLE.values() for name in row["names"]}
LISTED = {re.split(r"[( ]", name)[0].replace(":", ".") for name in NAMES}  # ray.module.Class.attribute
SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_installed_ray_has_each_private_name_in_the_shape_that_is_used(name: str) -> None:
    uses = [row["for"] for row in TABLE.values() if name in row["names"]]
    assert exists(name), f"Ray {ray.__version__} lacks {name}, which is for {'; '.join(uses)}"


def test_a_workers_short_way_leaves_out_all_options_of_rays_own_set_up() -> None:
    options = {option for action in setup_worker.parser._actions for option in action.option_strings}
    assert options - {"-h", "--help"} == set(FOR_RAYS_SETUP)


class Shapes:
    """What stands in for a class of Ray."""

    def __init__(self) -> None:
        self._set = 1

    def method(self, trial: int) -> str:
        return "--some-flag=1"


@pytest.mark.parametrize(
    ("path", "there"),
    [
        ("Shapes", True),
        ("Shapes.method", True),
        ("Shapes.method(trial)", True),
        ("Shapes.method(trial, kill)", False),
        ("Shapes.method '--some-flag'", True),
        ("Shapes.method '--another'", False),
        ("Shapes._set", True),
        ("Shapes._unset", False),
        ("NoShapes.method", False),
    ],
)
def test_a_name_is_there_only_in_its_shape(path: str, there: bool) -> None:
    assert exists(f"{__name__}:{path}") == there
    assert not exists(f"{__name__}_of_another_ray:{path}")


# Which private names the source has


def private(dotted: str) -> bool:
    """Whether it is inside of Ray: nobody promises that the next version has it."""
    inner = ("ray.tune.execution", "ray.tune.tune", "ray.experimental.internal_kv", "ray.core.generated")
    return dotted.startswith("ray.") and (
        any(part.startswith("_") and part != "__version__" for part in dotted.split("."))
        or f"{dotted}.".startswith(tuple(f"{each}." for each in inner))
    )


def imported(tree: ast.AST) -> dict[str, str]:
    """What the names that a module imports stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                (each.asname or each.name.partition(".")[0]): (each.asname and each.name) or each.name.partition(".")[0]
                for each in node.names
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


def own_names() -> set[str]:
    """Private attributes and functions that tuner itself defines."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and ast.unparse(node.value) == "self"
            ):
                found.add(node.attr)
    return found


OWN = own_names()
# Distinctive ones, which are also found where the object's class can't be known.
OF_RAYS_OBJECTS = (
    {name.rpartition(".")[2] for name in LISTED}
    - OWN
    - {"init", "get", "method", "__del__", "instance", "cleanup", "node", "parser", "__init__"}
)


def uses_of_ray(source: str) -> Iterator[str]:
    """Private names of Ray in a module: dotted if it imports them, otherwise the attribute or keyword alone."""
    tree = ast.parse(source)
    known = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if private(each.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (dotted for each in node.names if private(dotted := f"{node.module}.{each.name}"))
        elif isinstance(node, ast.Attribute):
            root, *_ = parts = ast.unparse(node).replace("()", "").split(".")
            dotted = ".".join([known.get(root, ""), *parts[1:]])
            if dotted.startswith("ray."):
                yield from [dotted] if private(dotted) else []
            elif root not in known and _is_rays(node, root):
                yield node.attr
        elif isinstance(node, ast.Call):
            yield from (
                each.arg for each in node.keywords if each.arg and each.arg.startswith("_") and each.arg not in OWN
            )
            if ast.unparse(node.func).endswith(("getattr", "setattr", "hasattr", "changed")) and len(node.args) > 1:
                name = node.args[1]
                if isinstance(name, ast.Constant) and name.value in OF_RAYS_OBJECTS:
                    yield str(name.value)


def _is_rays(node: ast.Attribute, root: str) -> bool:
    if node.attr in OF_RAYS_OBJECTS:
        return True
    plain = node.attr.startswith("_") and not node.attr.endswith("__")
    return plain and root not in ("self", "cls") and not root.startswith("super()") and node.attr not in OWN


def searching(path: Path) -> bool:
    """Whether a module has to do with Ray: others have private attributes of other libraries."""
    return (
        path.relative_to(PACKAGE).parts[0] in ("driver", "worker", "doctor", "replay")
        or "import ray" in path.read_text()
    )


def test_private_names_of_ray_are_used_in_two_places_alone() -> None:
    outside = [
        path
        for path in SOURCES
        if searching(path) and not path.is_relative_to(INSIDE[0]) and not path.is_relative_to(INSIDE[1])
    ]
    assert len(outside) > 60
    assert {str(path): found for path in outside if (found := sorted({*uses_of_ray(path.read_text())}))} == {}


def test_every_private_name_that_is_used_there_stands_in_the_table() -> None:
    attributes = {part for name in LISTED for part in name.split(".")[2:]} | {"_temp_dir", "_node_ip_address"}
    missing = {}
    for path in (path for folder in INSIDE for path in folder.glob("*.py")):
        for name in {*uses_of_ray(path.read_text())}:
            listed = any(f"{each}.".startswith(f"{name}.") or f"{name}.".startswith(f"{each}.") for each in LISTED)
            if not (listed if "." in name else name in attributes):
                missing[name] = path.name
    assert missing == {}


def test_each_row_of_the_table_is_used() -> None:
    text = "".join(path.read_text() for path in SOURCES)
    unused = [use for use in TABLE if not re.search(rf'(present|patched)\(\s*"{use}"', text)]
    assert unused == ["folder", "early_workers", "own_controller", "drained_nodes"]  # which need no question
    assert set(re.findall(r'(?:present|patched)\("(\w+)"', text)) | set(names.QUICK) <= TABLE.keys()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from ray._private import services", ["ray._private.services"]),
        (
            "import ray\nray._private.worker.shutdown()",
            ["ray._private.worker.shutdown", "ray._private.worker", "ray._private"],
        ),
        (
            "from ray.tune.execution.tune_controller import TuneController",
            ["ray.tune.execution.tune_controller.TuneController"],
        ),
        ("def f(controller): controller._live_trials.clear()", ["_live_trials"]),
        ("def f(session): session.stop_event.set()", ["stop_event"]),
        ("def f(it): return it._made_up_by_ray", ["_made_up_by_ray"]),
        ("import ray\nray.init(_redis_password='')", ["_redis_password"]),
        ("def f(given): return getattr(given, '_tune_controller', given)", ["_tune_controller"]),
        ("import os\nos._exit(1)", []),
        ("class A:\n    def f(self): return self._own", []),
        ("import ray\nray.kill(ray.get_actor('x'))", []),
    ],
)
def test_what_counts_as_a_private_name(source: str, found: list[str]) -> None:
    assert sorted(set(uses_of_ray(source))) == sorted(found)


# What a search does on a Ray that lacks some


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Names that are deleted are looked up again, during the test and after it."""
    present.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    present.cache_clear()


def test_a_patch_whose_name_is_missing_is_left_out_and_told_in_one_notice(lacking: pytest.MonkeyPatch) -> None:
    from ray._private import utils, worker

    assert notices("9.9", "starts", None) == ()
    original = worker.print_to_stdstream
    with patched("silent_raylet", lambda _: print):
        assert worker.print_to_stdstream is print
    assert worker.print_to_stdstream is original
    lacking.delattr(worker, "print_to_stdstream")
    lacking.delattr(utils, "set_sigterm_handler")
    lacking.delattr("ray._private.state.GlobalState.get_draining_nodes")  # which only a joined cluster has
    present.cache_clear()
    with patched("silent_raylet", lambda _: print):
        assert not hasattr(worker, "print_to_stdstream")
    (told,) = notices("9.9", "starts", None)
    assert told == (
        "Ray 9.9 lacks ray._private.worker:print_to_stdstream, ray._private.utils:set_sigterm_handler, so this search "
        "goes without a terminal without the raylet's messages; tuner's answer to SIGTERM while Ray starts"
    )
    (of_a_cluster,) = notices("9.9", "joins", None)
    assert of_a_cluster.endswith("; trials that leave nodes which are drained")


def test_a_plain_start_and_missing_names_are_told_together(lacking: pytest.MonkeyPatch) -> None:
    lacking.delattr("ray._private.worker.print_to_stdstream")
    (told,) = notices("9.9", "starts", "no such option")
    assert told.startswith(
        "Ray 9.9 did not start as tuner starts it (no such option) and lacks ray._private.worker:print_to_stdstream, so "
        "this search goes without processes of Ray that end with a killed driver; workers that start together with Ray; "
    )


def test_a_ray_without_what_every_search_needs_is_refused(lacking: pytest.MonkeyPatch) -> None:
    lacking.setattr("ray._private.worker.init", lambda address: None)
    with pytest.raises(StudyError, match=r"got Ray 9\.9, which lacks ray._private.worker:init '_temp_dir', ray"):
        check_needed("9.9")


def test_the_second_start_is_plain_and_the_first_line_of_the_first_error_is_kept() -> None:
    begun: list[str | None] = []
    failures = 0

    class Starting:
        def __init__(self, failed: str | None) -> None:
            self.failed = failed

        def begin(self, machine: object, settings: object) -> "Starting":
            begun.append(self.failed)
            if len(begun) <= failures:
                raise TimeoutError("no GCS\nafter 30 s")
            return self

    for tries in ([None], [None, "no GCS"]):
        failures = len(tries) - 1
        begun.clear()
        assert isinstance(local_ray._start(None, {}, Starting), Starting)  # type: ignore[arg-type]
        assert begun == tries
    begun.clear()
    failures = 2
    with pytest.raises(StudyError, match=r"got no answer from it twice \(no GCS\); try again"):
        local_ray._start(None, {}, Starting)  # type: ignore[arg-type]
    assert len(begun) == 2


BEGIN = """
import functools, sys
import ray, ray.tune, tuner
from ray._private import parameter, services
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.tune.execution import class_cache, tune_controller

def train(config):
    for _ in range(3):
        tuner.report(loss=config["x"])
"""
SEARCH = """
if __name__ == "__main__":
    study = tuner.Study("cheap", trial=train, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min",
        search=tuner.Random(), scheduler=tuner.NoEarlyStopping(), budget=tuner.Budget(trials=3, max_epochs=3), warm_start=None)
    run = tuner.run(study, storage="out", wandb="off")
    told = [notice for notice in run.record.notices if notice.startswith("Ray ")]
    print("FOUND", run.status, sorted(len(trial.epochs) for trial in run.record.trials.values()), len(told), *told)
"""
# Its start works for Ray itself, and not with one option that tuner gives it.
REFUSED = """
start = parameter.RayParams.__init__
@functools.wraps(start)
def refuse(self, *args, **options):
    if options.get("no_monitor"):
        raise TypeError("a monitor is needed")
    start(self, *args, **options)
parameter.RayParams.__init__ = refuse
"""
NEVER_STARTS = """
class Stuck(services.ConsolePopen):
    def __init__(self, command, *args, env=None, start_new_session=False, **options):
        command = ["/bin/false"] if start_new_session else command
        super().__init__(command, *args, env=env, start_new_session=start_new_session, **options)
services.ConsolePopen = Stuck
"""
RENAMED = """
from ray.train._internal import session
del class_cache._ActorClassCache
del session.get_session
tune_controller.TuneController.end_idle = tune_controller.TuneController._cleanup_cached_actors
RayActorManager.failed, RayActorManager._actor_task_failed = RayActorManager._actor_task_failed, property(lambda it: it.failed)
old = parameter.RayParams.__init__
def other(self, *args, **options):
    options.pop("surely", None)
    old(self, *args, **options)
parameter.RayParams.__init__ = other
"""
NOTHING = """
from tuner.driver.ray_inside import names
for row in names.TABLE.values():
    if "needed" not in row:
        row["names"].append("ray.nothing:at_all")
"""


def search_told(folder: Path, program: str) -> list[str]:
    """The lines that a program prints, which searches in its own process."""
    (folder / "program.py").write_text(program)
    settings = environment(PYTHONPATH=str(ROOT), RAY_gcs_server_port_wait_time_s="15")
    finished = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.ray
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            NOTHING,
            ["lacks ray.nothing:at_all, so this search goes without closed ports", "; workers that run trial after"],
        ),
        (REFUSED, ["did not start as tuner starts it (a monitor is needed)", "a Ray of as few processes"]),
        pytest.param(NEVER_STARTS, ["did not start as tuner starts it ("], marks=pytest.mark.slow),
        (
            RENAMED,
            [
                *("lacks ", "class_cache:_ActorClassCache.get", "session:get_session", "_actor_task_failed(tracked"),
                *(
                    "RayParams.__init__(setup_worker_path)",
                    "workers that run trial after trial: each trial starts its own",
                ),
            ],
        ),
    ],
    ids=["nothing", "refused", "never-starts", "renamed"],
)
def test_a_search_on_a_ray_whose_inside_is_another_completes_with_one_notice(
    tmp_path: Path, change: str, told: list[str]
) -> None:
    (found,) = [line for line in search_told(tmp_path, BEGIN + change + SEARCH) if line.startswith("FOUND")]
    assert found.startswith("FOUND finished [3, 3, 3] 1 Ray "), found
    assert [part for part in told if part not in found] == []


KEPT = """
import gc

class Count:
    def on_event(self, event):
        if event["event"] == "trial_ended" and event["trial"] == "00023":
            from tuner.driver.ray_inside.controller import RayTrial
            print("KEPT", sum(type(each) is RayTrial for each in gc.get_objects()))

def once(config):
    if config["x"] < 0.2:
        raise ValueError("a trial that fails")
    tuner.report(loss=config["x"])

if __name__ == "__main__":
    study = tuner.Study("many", trial=once, space={"x": tuner.uniform(0, 1)}, metric="loss", mode="min",
        search=tuner.Random(), scheduler=tuner.NoEarlyStopping(), budget=tuner.Budget(trials=24, max_epochs=1), warm_start=None)
    run = tuner.run(study, storage="out", wandb="off", concurrency=2, listeners=[Count()])
    print("FOUND", run.status, run.record.counts()["completed"], run.record.counts()["failed"])
"""


@pytest.mark.ray
def test_ended_trials_leave_the_memory_of_the_driver(tmp_path: Path) -> None:
    told = search_told(tmp_path, BEGIN + KEPT)
    assert told[-1].startswith("FOUND finished 19 5"), told
    (kept,) = [int(line.split()[1]) for line in told if line.startswith("KEPT")]
    assert 1 <= kept <= 8  # those that run, wait or have just ended
    (state,) = tmp_path.glob("out/many/*/tune/experiment_state-*.json")
    assert state.stat().st_size < 40_000  # bytes: Ray's record of a trial has 13,000


@pytest.mark.ray
def test_a_plain_ray_is_watched_and_leaves_nothing(tmp_path: Path) -> None:
    from tuner.driver import cluster
    from tuner.machine.hardware import Machine

    with warnings.catch_warnings(action="ignore"), cluster._prepared(), only_reachable_here():
        started = LocalRay(0, Workers(), "a reason").begin(Machine(1, 0, 2**30, "some"), cluster._SETTINGS)
        try:
            assert (started.processes, started.is_gone()) == ([], False)
            assert ray.get(ray.remote(lambda: 3).remote(), timeout=60) == 3
            addresses = listening({ray_process(os.getpid(), name) for name in ("gcs_server", "raylet")})
            assert addresses
            assert set(addresses) <= LOOPBACK
            assert started.folder.path.exists()
        finally:
            started.end()
    assert not started.folder.path.exists()


@pytest.mark.ray
def test_the_doctor_tells_what_a_search_does_without(lacking: pytest.MonkeyPatch) -> None:
    lacking.delattr("ray._private.worker.print_to_stdstream")
    found = ray_starts(Subject())
    assert found.status == "notice"
    assert found.said == (
        f"Ray {ray.__version__} lacks ray._private.worker:print_to_stdstream, so this search goes without a terminal "
        "without the raylet's messages"
    )
