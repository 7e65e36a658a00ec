"""How workers begin: which ones go on in their first process, and what they are like when they have."""

import gc
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.processes import is_alive
from tests.searches import ray_process, wait_for
from tuner.driver import agent_stand_in, cluster
from tuner.driver.local_ray import LOOPBACK, LocalRay, local_ray
from tuner.driver.quick_start import ReservedPort, Workers, once_registered, raylet_command
from tuner.machine import Machine
from tuner.worker import begin

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


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_looked_for_again_after_a_block_as_before_it(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with begin.no_collecting():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_reserved_port_is_for_who_asks_for_it_by_its_number() -> None:
    reserved = ReservedPort(LOOPBACK)
    with closing(reserved), socket.socket() as stranger, socket.socket() as agent:
        with pytest.raises(OSError, match="in use"):
            stranger.bind((LOOPBACK, reserved.number))
        agent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        agent.bind((LOOPBACK, reserved.number))
        agent.listen()
        with socket.create_connection((LOOPBACK, reserved.number)):
            pass


def test_the_raylet_starts_as_many_workers_as_there_are_trials_and_stand_ins_for_its_agents() -> None:
    agents = ["--dashboard_agent_command=python a.py", "--runtime_env_agent_command=python b.py"]
    command = ["/raylet", "--num_prestart_python_workers=64", *agents, "--head"]
    raylet, workers, metrics, runtime_env, head = raylet_command(command, Workers(count=3), 4321)
    assert (raylet, workers, head) == ("/raylet", "--num_prestart_python_workers=3", "--head")
    assert_stands_in(metrics, "--dashboard_agent_command", ["0", "python", "a.py"])
    assert_stands_in(runtime_env, "--runtime_env_agent_command", ["4321", "python", "b.py"])


def assert_stands_in(argument: str, name: str, then: list[str]) -> None:
    """Whatever characters the folder of the package has."""
    given, _, command = argument.partition("=")
    *_, program, first, second, third = shlex.split(command)
    assert (given, Path(program).name, [first, second, third]) == (name, "agent_stand_in.py", then)


def test_a_stand_in_becomes_its_agent_when_it_is_asked_for_and_ends_with_its_raylet(tmp_path: Path) -> None:
    reserved = ReservedPort(LOOPBACK)
    raylet = f"""
import subprocess, sys
ports = [{reserved.number}, 0]
became = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"
made = [subprocess.Popen([sys.executable, "-I", "-S", {agent_stand_in.__file__!r}, str(port), sys.executable, "-c", became, f"became {{port}}"])
        for port in ports]
print(*(each.pid for each in made), flush=True)
made[0].wait()
"""
    with (
        closing(reserved),
        subprocess.Popen([sys.executable, "-c", raylet], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as running,
    ):
        assert running.stdout is not None
        _, other = map(int, running.stdout.readline().split())
        assert list(tmp_path.iterdir()) == []
        wait_for(lambda: answers(reserved.number), 60)
        running.wait(60)  # as the first has become its agent, which ends at once
        assert [file.name for file in tmp_path.iterdir()] == [f"became {reserved.number}"]
        wait_for(lambda: not is_alive(other), 60)


def answers(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port)).close()
    except ConnectionRefusedError:
        return False
    return True


class Look:
    """What an actor finds around it."""

    def around(self) -> dict[str, Any]:
        children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
        return {
            "loaded": sorted({"wave", "no_such_module"} & sys.modules.keys()),
            "collecting": (gc.isenabled(), gc.get_freeze_count() > 10_000),
            "program": Path(sys.argv[0]).name,
            "misplaced": [path for path in sys.path if path.endswith("tuner/worker")],
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
            "collecting": (True, True),
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
def test_a_node_that_is_not_known_is_not_waited_for_once_its_process_has_ended(started: tuple[Any, LocalRay]) -> None:
    ray, running = started
    get_node = once_registered(lambda address, node: {"node": node}, running.is_gone)
    address, known = ray.get_runtime_context().gcs_address, ray.get_runtime_context().get_node_id()
    assert get_node(address, known) == {"node": known}
    with pytest.raises(ConnectionError, match="ended while it started"):
        once_registered(lambda *_: None, lambda: True)(address, ray.NodeID.from_random().hex())


@pytest.mark.ray
def test_neither_a_dashboard_nor_more_processes_than_a_search_needs_run(started: tuple[Any, LocalRay]) -> None:
    _, running = started
    assert [Path(process.args[0]).name for process in running.processes] == ["gcs_server", "raylet"]
    assert ray_process(os.getpid(), "raylet") == running.processes[1].pid
