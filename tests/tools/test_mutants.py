"""Faults put in on purpose by tests/tools/mutants.py: which there are, which tests run them, and what finds them."""

import ast
import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.tools.mutant_kinds import changes
from tests.tools.mutant_tests import Record, Tree, alone, digest
from tests.tools.mutants import Mutant, covering, drawn, main

ROOT = Path(__file__).parent.parent.parent


def changed(source: str) -> set[str]:
    return {change.applied(source) for change in changes(source)}


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("a < b", {"a <= b", "a >= b"}),
        ("a <= b < c", {"a < b < c", "a > b < c", "a <= b <= c", "a <= b >= c"}),
        ("a  is  not b", {"a  is b"}),
        ("(a) not in (b)", {"(a) in (b)"}),
        ("é == b", {"é != b"}),
        ("a and b or c", {"a or b or c", "a and b and c"}),
        ("not a", {"a"}),
        ("a + b - c", {"a - b - c", "a + b + c"}),
        ("a += b", {"a -= b"}),
        ("a = 1", {"a = 2", "a = 0"}),
        ("a = 0.5", {"a = 1.5", "a = -0.5"}),
        ("f(a)", {"pass"}),
        ("a = max(b, c.min())", {"a = min(b, c.min())", "a = max(b, c.max())"}),
        ("a = b if c else d", {"a = b if True else d", "a = b if False else d"}),
        (
            "if a:\n    b\nelif c:\n    d",
            {
                f"if {a}:\n    b\nelif {c}:\n    d"
                for a, c in (("True", "c"), ("False", "c"), ("a", "True"), ("a", "False"))
            },
        ),
        ("while a:\n    break", {"while a:\n    continue"}),
        ("while a:\n    continue", {"while a:\n    break"}),
        ("def f():\n    return (\n        a\n    )", {"def f():\n    return (\n        None\n    )"}),
    ],
)
def test_a_place_changes_in_its_own_text_alone(source, mutants):
    assert changed(source) == mutants


@pytest.mark.parametrize(
    "source",
    [
        '"""At most 3 of 4."""',
        "def f(a: Literal[1] = b) -> Literal[2]: ...",
        "a: Annotated[int, 3]",
        "if TYPE_CHECKING:\n    import a\n    b(1)",
        'a = f"{b + 1}"',
        'raise ValueError("at most " + str(3))',
        "os.kill(pid, 0)",
        "def f():\n    return None",
        'a = "text " + b',
        "a = True",
    ],
)
def test_what_only_people_and_type_checkers_read_is_left_alone(source):
    assert changed(source) == set()


def test_every_change_of_a_module_is_another_program():
    source = (ROOT / "tuner/schedule/asha.py").read_text()
    tree = ast.dump(ast.parse(source))
    found = changes(source)
    assert {change.kind for change in found} >= {"comparison", "number", "return", "if", "call", "min, max"}
    assert all(ast.dump(ast.parse(change.applied(source))) != tree for change in found)


def test_a_change_knows_its_scope_its_statement_and_whether_it_runs_once():
    source = "LIMIT = 1\n\n\nclass A:\n    @cache\n    def b(self, c=2):\n        return f(\n            3\n        )\n\n    def d(self):\n        return 4\n"
    found = {change.before: change for change in changes(source) if change.kind == "number"}
    assert {before: (change.scope, change.lines, change.once) for before, change in found.items()} == {
        "1": ("", (1, 1), True),
        "2": ("A.b", (6, 6), True),
        "3": ("A.b", (7, 9), True),
        "4": ("A.d", (12, 12), False),
    }
    assert found["3"].line(source) == 8


@pytest.fixture
def three_rooms(tmp_path):
    for room, places in (("large", 40), ("small", 3)):
        (tmp_path / "tuner" / room).mkdir(parents=True)
        (tmp_path / "tuner" / room / "module.py").write_text("".join(f"v{each} = {each}\n" for each in range(places)))
    (tmp_path / "tuner" / "alone.py").write_text("a = 1\nb = 2\n")
    return tmp_path


def test_mutants_are_drawn_evenly_over_packages_and_the_same_for_the_same_seed(three_rooms):
    nine = drawn(three_rooms, 9, seed=1)
    assert sorted(mutant.package for mutant in nine) == ["large"] * 4 + ["small"] * 3 + ["tuner"] * 2
    assert drawn(three_rooms, 9, seed=1) == nine
    assert drawn(three_rooms, 4, seed=1) == nine[:4]
    assert drawn(three_rooms, 9, seed=2) != nine
    assert {mutant.package for mutant in drawn(three_rooms, 9, seed=1, packages=["small"])} == {"small"}


def test_an_edit_elsewhere_leaves_the_drawn_mutants_as_they_are(three_rooms):
    before = [mutant for mutant in drawn(three_rooms, 9, seed=1) if mutant.package == "small"]
    file = three_rooms / "tuner/small/module.py"
    file.write_text(f"# a comment\n\n{file.read_text()}")
    after = [mutant for mutant in drawn(three_rooms, 9, seed=1) if mutant.package == "small"]
    assert [mutant.difference for mutant in after] == [mutant.difference for mutant in before]
    assert [mutant.change.line(mutant.source) for mutant in after] == [
        mutant.change.line(mutant.source) + 2 for mutant in before
    ]


def test_an_unknown_package_is_refused_with_those_that_there_are(three_rooms):
    with pytest.raises(SystemExit, match=r"^--packages got larg; tuner/ has large, small, tuner$"):
        drawn(three_rooms, 1, seed=1, packages=["larg"])


def test_a_line_without_a_place_that_can_change_is_refused(three_rooms):
    with pytest.raises(SystemExit, match=r"^--at needs FILE:LINE where something can change, got tuner/alone\.py:3$"):
        main(["--root", str(three_rooms), "--map", "none", "--at", "tuner/alone.py:1", "tuner/alone.py:3"])


def covered(
    tmp_path, line: int, source: str = "A = 1\n\n\ndef f():\n    return 2\n", markers=(), **tests: str
) -> set[str]:
    """The tests of a change in tuner/room/module.py, whose line 5 `t_line` runs; `t_other` runs another line of it."""
    for name in ("module", "other", "new", "ray"):
        (tmp_path / f"test_{name}.py").write_text(tests.get(name, ""))
    recorded = Record(
        tests={
            "test_module.py::line": {"outcome": "passed", "setup": 0, "seconds": 2},
            "test_module.py::other": {"outcome": "passed", "setup": 0, "seconds": 1},
            "test_module.py::failed": {"outcome": "failed", "setup": 0, "seconds": 1},
            "test_ray.py::search": {"outcome": "passed", "setup": 0, "seconds": 9},
        },
        lines={
            "tuner/room/module.py": {
                4: {"test_module.py::other"},
                5: {"test_module.py::line", "test_module.py::failed"},
            }
        },
        sources={"tuner/room/module.py": digest("A = 1\n\n\ndef f():\n    return 2\n")},
    )
    available = {test: [] for test in recorded.tests} | {"test_new.py::new": []} | {"test_ray.py::search": ["ray"]}
    change = next(each for each in changes(source) if each.line(source) == line)
    return covering(Mutant("tuner/room/module.py", change, source), recorded, available, tmp_path)


def test_a_mutant_meets_the_tests_that_run_its_line(tmp_path):
    assert covered(tmp_path, 5) == {"test_module.py::line"}


def test_a_line_that_runs_once_in_a_process_meets_every_test_of_its_module(tmp_path):
    assert covered(tmp_path, 1) == {"test_module.py::line", "test_module.py::other"}


def test_a_module_that_was_edited_since_the_record_meets_every_test_of_it(tmp_path):
    assert covered(tmp_path, 2, "def f():\n    return 3\n") == {
        "test_module.py::line",
        "test_module.py::other",
    }


def test_new_tests_and_those_that_start_ray_meet_the_rooms_that_their_files_name(tmp_path):
    found = covered(tmp_path, 5, new="from tuner.room import module", ray="# of tuner/room/")
    assert found == {"test_module.py::line", "test_new.py::new", "test_ray.py::search"}


def test_new_tests_that_name_another_room_are_left_out(tmp_path):
    assert covered(tmp_path, 5, new="from tuner.rooms import a", ray="tuner.another") == {"test_module.py::line"}


def test_files_of_short_tests_come_first():
    seconds = {"a::1": 5, "a::2": 1, "b::1": 3, "b::2": 2}
    recorded = Record({test: {"outcome": "passed", "setup": 0, "seconds": each} for test, each in seconds.items()})
    assert recorded.shortest_first(seconds) == ["b::2", "b::1", "a::2", "a::1"]


@pytest.fixture
def checkout(tmp_path):
    """A small package with tests, where git and process namespaces are to be had."""
    try:
        alone()
    except OSError as error:
        pytest.skip(str(error))
    files = {
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow: of the slow ones"]\n',
        "tuner/__init__.py": "",
        "tuner/sums/__init__.py": "",
        "tuner/sums/limits.py": (
            "def smaller(a, b):\n    yield min(a, b)\n\n\n"
            "def both(a, b):\n    yield a and b\n\n\n"
            "def neither(a):\n    yield not a\n"
        ),
        "tuner/sums/__main__.py": "from tuner.sums.limits import smaller\n\nprint(*smaller('7', '8'))\n",
        "tests/__init__.py": "",
        "tests/test_limits.py": """
import subprocess, sys, pytest
from tuner.sums.limits import both, smaller

@pytest.fixture(scope="module")
def made():
    return list(smaller(1, 2))

def test_first(made):
    assert made

def test_second(made):
    assert made != [3]

def test_command():
    assert subprocess.check_output([sys.executable, "-m", "tuner.sums"]) == b"7\\n"

@pytest.mark.slow
def test_slow():
    assert list(both(1, 0)) == [0]
""",
    }
    for name, text in files.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path / "checkout", check=True)
    return tmp_path / "checkout"


@pytest.mark.slow
def test_each_mutant_is_told_by_what_found_it(checkout, tmp_path, capsys):
    record, rows = tmp_path / "map.json", tmp_path / "rows.json"
    places = [f"tuner/sums/limits.py:{line}" for line in (2, 6, 10)]
    main(["--root", str(checkout), "--map", str(record), "--json", str(rows), "--jobs", "1", "--at", *places])
    outcomes = {
        row["place"]: (row["after"], row["found_by"], row["reason"], row["quick_tests"], row["slow_tests"])
        for row in json.loads(rows.read_text())
    }
    tests = "tests/test_limits.py::"
    assert outcomes == {
        # two tests share the fixture that runs it, and one runs it in a process of its own
        "tuner/sums/limits.py:2": ("yield max(a, b)", "quick tests", f"{tests}test_command", 3, 0),
        "tuner/sums/limits.py:6": ("yield a or b", "slow tests", f"{tests}test_slow", 0, 1),
        "tuner/sums/limits.py:10": ("yield a", "none", "", 0, 0),
    }
    totals = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert totals == {
        "tried": 3,
        "found by quick tests": 1,
        "found only by slow tests": 1,
        "found by none": 1,
        "run by no test": 1,
    }


def test_a_test_whose_id_has_the_fault_in_it_is_run_all_the_same(checkout, tmp_path):
    (checkout / "tests/test_limits.py").write_text(
        """
import pytest
from pathlib import Path
@pytest.mark.parametrize("limit", [4, 5])
def test_limit(limit):
    Path("ran").open("a").write(f"limit {limit} ")
def test_other():
    Path("ran").open("a").write("other ")
def test_left_out():
    Path("ran").open("a").write("left out ")
"""
    )
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps([f"tests/test_limits.py::test_{test}" for test in ("other", "limit[3]", "limit[5]")]))
    (tmp_path / "tree").mkdir()
    tree = Tree(checkout, tmp_path / "tree")
    assert not tree.pytest([f"--chosen={chosen}", "tests/test_limits.py"]).failed
    assert (tree.path / "ran").read_text() == "other limit 4 limit 5 "


def test_a_run_that_hangs_ends_with_all_that_it_started(checkout, tmp_path):
    (checkout / "tests/test_limits.py").write_text(
        f"""
import subprocess, time
def test_hangs():
    subprocess.Popen(["sh", "-c", "while sleep 0.1; do date > {tmp_path}/lives; done"], start_new_session=True)
    time.sleep(100)
"""
    )
    (tmp_path / "tree").mkdir()
    tree, limit = Tree(checkout, tmp_path / "tree"), 3
    while not (tmp_path / "lives").exists():  # on a busy machine pytest itself takes longer to start
        finished = tree.pytest([], limit=limit)
        assert (finished.failed, finished.reason) == (True, "time limit")
        limit *= 3
    (tmp_path / "lives").unlink()
    time.sleep(0.5)
    assert not (tmp_path / "lives").exists()
