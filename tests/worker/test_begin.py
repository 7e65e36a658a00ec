"""How workers begin: which ones go on in their first process, and what they are like when they have."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner.driver import cluster
from tuner.driver.local_ray import LocalRay, local_ray
from tuner.driver.ray_inside.start import Workers
from tuner.machine.hardware import Machine
from tuner.worker.ray_inside import begin

PROGRAM = "/ray/_private/workers/default_worker.py"
ENVIRONMENT = '--serialized-runtime-env-context={"env_vars": {"A": "1"}}'


@pytest.mark.parametrize(
    ("arguments", "plain"),
    [
        ([PROGRAM, "--node-id=a", "--language=PYTHON"], True),
        ([PROGRAM, "--language=PYTHON", ENVIRONMENT], False),
        ([PROGRAM, "--language=JAVA"], False),
        ([PROGRAM], False),
        (["-S", PROGRAM, "--language=PYTHON"], False),  # an option of Python's
    ],
)
def test_a_worker_goes_on_in_its_first_process_unless_it_is_for_an_environment_of_its_own(
    arguments: list[str], plain: bool
) -> None:
    assert begin.is_plain(arguments) == plain


def test_what_is_not_plain_is_handed_to_rays_own_program_with_all_arguments(tmp_path: Path) -> None:
    (tmp_path / "setup_worker.py").write_text("import sys\nprint(*sys.argv[1:])")
    arguments = ["-S", str(tmp_path / "default_worker.py"), "--language=PYTHON", "--other=1"]
    command = [sys.executable, begin.__file__, *arguments]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == arguments


def test_the_raylet_starts_as_many_workers_as_there_are_trials() -> None:
    command = ["/raylet", "--num_prestart_python_workers=64", "--head"]
    assert Workers(count=3).raylet_command(command) == ["/raylet", "--num_prestart_python_workers=3", "--head"]


class Look:
    """What an actor finds around it."""

    def around(self) -> dict[str, Any]:
        children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
        return {
            "loaded": sorted({"wave", "no_such_module"} & sys.modules.keys()),
            "program": Path(sys.argv[0]).name,
            "misplaced": [path for path in sys.path if path.endswith("tuner/worker/ray_inside")],
            "threads": os.environ["OMP_NUM_THREADS"],
            "added": os.environ.get("ADDED"),
            "workers": sum("default_worker" in Path(f"/proc/{child}/cmdline").read_text() for child in children),
        }


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Any, LocalRay]]:
    """Ray with CPUs for eight, and workers for two trials of three CPUs each."""
    workers = Workers(2, ("no_such_module", "wave"), cpus=3)
    with (
        cluster._prepared(),
        local_ray(Machine(8, 0, 2**33, "some"), cluster._SETTINGS, nice=0, workers=workers) as running,
    ):
        import ray

        yield ray, running


@pytest.mark.ray
def test_workers_have_begun_before_they_are_asked_for(started: tuple[Any, LocalRay]) -> None:
    ray, _ = started
    actors = [ray.remote(Look).options(num_cpus=3).remote() for _ in range(2)]
    for found in ray.get([actor.around.remote() for actor in actors], timeout=300):
        assert found == {
            "loaded": ["wave"],  # a module that isn't there is left out
            "program": "default_worker.py",
            "misplaced": [],
            "threads": "3",
            "added": None,
            "workers": found["workers"],
        }
    if " " in sys.executable:
        return  # the shell of Ray's own program would take such a path for two words
    other = ray.remote(Look).options(num_cpus=1, runtime_env={"env_vars": {"ADDED": "yes"}}).remote()
    assert ray.get(other.around.remote(), timeout=300)["added"] == "yes"  # by Ray's own program and its agent


@pytest.mark.ray
def test_no_more_processes_than_a_search_needs_run(started: tuple[Any, LocalRay]) -> None:
    _, running = started
    assert [Path(process.args[0]).name for process in running.processes] == ["gcs_server", "raylet"]
