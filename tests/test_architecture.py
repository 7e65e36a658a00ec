"""Who may import whom, held against the source; and what `import tuner` must not load."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tuner.trial import Trial

PACKAGE = Path(__file__).parent.parent / "tuner"

# room -> (rooms of tuner, heavy libraries) it may import; itself always
MAY_IMPORT = {
    "version": (set(), set()),
    "web_opener": (set(), set()),
    "errors": ({"device_errors"}, set()),
    "device_errors": (set(), set()),
    "nvml": (set(), set()),
    "machine": ({"nvml"}, set()),
    "installation": ({"errors"}, set()),
    "cache_folder": (set(), set()),
    "techniques": (set(), set()),
    "starting": (set(), set()),
    "temporary": (set(), set()),
    "session": (set(), set()),
    "mode": (set(), set()),
    "quoting": (set(), set()),
    "one_thread": (set(), {"threadpoolctl"}),
    "child_process": ({"errors"}, set()),
    "foreign_text": (set(), set()),
    "space": ({"errors"}, set()),
    "search": ({"one_thread", "mode", "space", "errors"}, {"hyperopt", "optuna", "scipy"}),
    "schedule": ({"mode", "space", "errors"}, set()),
    "trial": ({"mode", "space", "storage", "errors"}, set()),
    "resources": ({"space", "trial", "errors"}, set()),
    "budget": ({"mode", "space", "errors"}, set()),
    "failures": ({"errors"}, set()),
    "study": (
        {"budget", "failures", "mode", "space", "search", "schedule", "trial", "resources", "errors", "machine"},
        set(),
    ),
    "study_file": ({"study", "space", "errors"}, set()),
    "study_json": (
        {"study", "budget", "failures", "resources", "schedule", "search", "space", "trial", "errors"},
        set(),
    ),
    "train": (
        {
            *("trial", "storage", "machine", "nvml", "cache_folder", "techniques", "errors", "temporary"),
            "child_process",
        },
        {"torch", "torchvision"},
    ),
    "storage": ({"cache_folder", "quoting", "errors"}, {"obstore"}),
    "history": ({"storage", "study", "space", "budget", "errors", "foreign_text", "temporary"}, set()),
    "orders": ({"results", "history", "storage", "space", "budget", "errors", "quoting"}, set()),
    "results": (
        {
            *(
                "history",
                "storage",
                "study",
                "study_file",
                "study_json",
                "budget",
                "failures",
                "space",
                "search",
            ),
            *("errors", "foreign_text", "quoting", "cache_folder", "temporary", "schedule", "one_thread"),
        },
        {"pandas", "optuna", "scipy"},
    ),
    "replay": (
        {
            *("worker", "results", "history", "storage", "study", "study_file", "trial", "session", "machine"),
            *("errors", "temporary", "space", "child_process"),
        },
        set(),
    ),
    "notify": ({"results", "history", "errors", "quoting", "web_opener"}, set()),
    "plots": ({"results", "history", "space", "search"}, {"pandas"}),
    "html_report": ({"results", "history", "plots", "errors", "foreign_text", "quoting"}, {"pandas"}),
    "wandb_mirror": (
        {
            *("results", "html_report", "plots", "history", "storage", "space", "machine", "errors", "foreign_text"),
            "quoting",
        },
        {"wandb", "pandas"},
    ),
    "inspection": ({"space", "train", "results", "history", "storage", "trial", "errors"}, {"torch", "torchvision"}),
    "loop": (
        {
            *("study", "budget", "failures", "space", "search", "schedule", "results", "history", "storage"),
            *("trial", "orders", "errors", "quoting"),
        },
        set(),
    ),
    "lifecycle": (
        {
            *("loop", "study", "study_json", "budget", "resources", "space", "results", "orders", "history", "storage"),
            *("html_report", "notify", "quoting", "machine", "errors", "temporary"),
        },
        set(),
    ),
    "ask_tell": (
        {
            *("lifecycle", "loop", "study", "study_file", "study_json", "budget", "resources", "search", "schedule"),
            *("results", "history", "notify", "space"),
            *("storage", "quoting", "errors", "temporary", "api"),
        },
        set(),
    ),
    "worker": (
        {
            "train",
            "inspection",
            "session",
            "space",
            "study",
            "study_file",
            "trial",
            "history",
            "storage",
            "errors",
            "device_errors",
            "machine",
            "nvml",
            "child_process",
            "temporary",
        },
        {"ray", "torch"},
    ),
    "driver": (
        {
            "loop",
            "lifecycle",
            "worker",
            "study",
            "study_file",
            "budget",
            "resources",
            "space",
            "search",
            "trial",
            "results",
            "orders",
            "history",
            "storage",
            "html_report",
            "wandb_mirror",
            "quoting",
            "machine",
            "doctor",
            "techniques",
            "nvml",
            "errors",
            "schedule",
            "temporary",
            "notify",
            "child_process",
            "version",
        },
        {"ray"},
    ),
    "doctor": (
        {
            *("train", "trial", "machine", "nvml", "cache_folder", "techniques", "errors", "device_errors"),
            "child_process",
        },
        {"torch", "torchvision"},
    ),
    "first_study": (
        {"driver", "trial", "study", "study_file", "space", "machine", "errors"},
        set(),
    ),
    "console": (
        {
            *("results", "history", "budget", "study", "space", "trial", "inspection", "doctor", "driver"),
            *("first_study", "errors", "foreign_text", "quoting"),
        },
        {"rich"},
    ),
    "api": (
        {
            *("console", "driver", "inspection", "results", "history", "study", "study_file", "installation"),
            *("notify", "errors", "plots", "replay", "orders", "lifecycle", "worker", "machine", "child_process"),
        },
        {"pandas", "ray"},
    ),
    "service": (
        {
            *("results", "history", "orders", "storage", "study", "study_file", "budget", "resources", "trial"),
            *("machine", "nvml", "errors", "foreign_text", "quoting", "html_report", "plots", "space", "study_json"),
            *("child_process", "mode", "version", "web_opener"),
        },
        {"fastapi", "uvicorn", "argon2", "prometheus_client"},
    ),
    "cli": (
        {
            *("console", "driver", "doctor", "inspection", "results", "budget", "resources", "search", "study"),
            *("study_file", "errors", "starting", "html_report", "wandb_mirror", "foreign_text", "quoting"),
            *("installation", "replay", "loop", "orders", "service", "temporary", "trial", "first_study", "lifecycle"),
            *("storage", "space", "web_opener"),
        },
        set(),
    ),
}
HEAVY = {
    *("ray", "torch", "torchvision", "hyperopt", "optuna", "pandas", "scipy", "wandb", "rich", "obstore"),
    *("fastapi", "uvicorn", "argon2", "prometheus_client"),
}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Of a module, itself first; each is parsed once for all tests."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> set[str]:
    """Dotted names that a module imports, wherever in it, type checking included."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def of_tuner(importing: Iterable[ast.AST]) -> set[str]:
    """The modules of tuner that these nodes import."""
    found: set[str] = set()
    for node in importing:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {name if (name := f"{node.module}.{alias.name}") in NAMES else node.module for alias in node.names}
    return found & NAMES


def loaded_at_once(path: Path) -> Iterator[ast.AST]:
    """Nodes that run when the module is imported: not those inside functions or for type checkers only."""
    waiting: list[ast.AST] = [nodes(path)[0]]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {dotted(path) for path in PACKAGE.rglob("*.py")}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if room_of(path) not in ("__init__", "__main__"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(path)
    rooms, libraries = MAY_IMPORT[room]
    names = imports(path)
    used = {
        parts[1] for parts in (name.split(".") for name in names) if parts[0] == "tuner" and len(parts) > 1
    } & MAY_IMPORT.keys()
    assert used - rooms - {room} == set()
    assert {name.split(".")[0] for name in names} & HEAVY - libraries == set()


def test_no_room_has_the_name_of_something_public() -> None:
    """A package that is imported would take the place of `tuner.report`, the function."""
    import tuner

    public = {name for name in tuner.__all__ if not name[0].isupper()}
    assert {"report", "checkpoint"} <= public
    assert {room_of(path) for path in MODULES} & public == set()


CONFUSED = {
    "batch_norm",
    "checkpoint",
    "comparison",
    "process",
    "processes",
    "saving",
    "splitting",
    "strategy",
    "winner",
}


def test_names_that_were_confused_are_told_apart() -> None:
    names = [path.stem for path in MODULES]
    assert {name: names.count(name) for name in CONFUSED if names.count(name) > 1} == {}


def test_the_type_of_a_mode_is_written_once() -> None:
    written = [
        path
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Subscript) and ast.unparse(node) in ("Literal['min', 'max']", "Literal['max', 'min']")
    ]
    assert written == [PACKAGE / "mode.py"]


def circle(imported: Mapping[str, set[str]]) -> str:
    """A circle of those that import each other, as a → b → a; empty if there is none."""
    try:
        TopologicalSorter({name: sorted(others) for name, others in imported.items()}).prepare()
    except CycleError as error:
        return " → ".join(reversed(error.args[1]))
    return ""


def test_a_circle_is_named_in_its_order() -> None:
    straight = {"a": {"b", "c"}, "b": {"c"}, "c": {"d"}}
    assert circle(straight) == ""
    assert circle(straight | {"d": {"b"}}) == "b → c → d → b"


def test_an_import_counts_wherever_it_is() -> None:
    text = """
from typing import TYPE_CHECKING
from tuner.space.mode import Mode
if TYPE_CHECKING:
    from tuner import errors
def later():
    import tuner.study.declaration
"""
    assert of_tuner(ast.walk(ast.parse(text))) == {"tuner.space.mode", "tuner.errors", "tuner.study.declaration"}


IMPORTED = {dotted(path): of_tuner(nodes(path)) - {dotted(path)} for path in PACKAGE.rglob("*.py")}


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(IMPORTED) == ""


def test_no_rooms_import_each_other_in_a_circle() -> None:
    """`tuner` itself is the room above those that it exports."""
    rooms: dict[str, set[str]] = {}
    for name, others in IMPORTED.items():
        room = room_named(name)
        rooms.setdefault(room, set()).update({room_named(other) for other in others} - {room})
    assert circle(rooms) == ""
    assert circle({room: allowed for room, (allowed, _) in MAY_IMPORT.items()}) == ""


def room_named(module: str) -> str:
    return ".".join(module.split(".")[:2])


def test_each_module_can_be_the_first_that_is_imported() -> None:
    """An import runs the packages above a module, too; `tuner` itself, the one above all, imports no room."""
    run: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = dotted(path)
        loaded = {above for each in of_tuner(loaded_at_once(path)) for above in (each, *packages_above(each))}
        run[name] = loaded - {name, *packages_above(name)}
    assert circle(run) == ""


def packages_above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(2, len(parts))]


def test_the_modules_of_the_mirror_alone_import_wandb() -> None:
    importing = [path.name for path in MODULES if "wandb" in {name.split(".")[0] for name in imports(path)}]
    assert importing == ["mirror.py", "summary.py"]


# The rooms that know one kind of trial: they do its work.
IMPLEMENTATIONS = (
    "train/",
    "inspection/",
    "first_study/",
    "worker/classification.py",
    "worker/function.py",
    "worker/several.py",
    "worker/external.py",
    "doctor/training.py",
    "study_json.py",
)


def names_in(path: Path) -> set[str]:
    """Names that a module's code uses or imports, and what texts in it begin with before a bracket."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Name | ast.alias | ast.Attribute):
            found.add(getattr(node, "id", getattr(node, "name", getattr(node, "attr", ""))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "(" in node.value:
            found.add(node.value.partition("(")[0])
    return found


def test_only_a_trials_own_implementation_asks_for_its_class() -> None:
    kinds = {kind.__name__ for kind in Trial.__subclasses__() if kind.__module__.startswith("tuner.")}
    assert kinds == {"External", "FunctionTrial", "ImageClassifier"}
    asking = [
        path.relative_to(PACKAGE).as_posix() for path in MODULES if room_of(path) != "trial" and kinds & names_in(path)
    ]
    assert [name for name in asking if not name.startswith(IMPLEMENTATIONS)] == []


def calls(path: Path) -> dict[str, list[ast.Call]]:
    """What a module calls, by its dotted name."""
    found: dict[str, list[ast.Call]] = {}
    for node in nodes(path):
        if isinstance(node, ast.Call):
            found.setdefault(ast.unparse(node.func), []).append(node)
    return found


def test_what_others_wrote_is_never_unpickled() -> None:
    own_messages = {"worker", "driver", "train/parallel", "replay"}  # from this search's own driver
    for path in MODULES:
        made = calls(path)
        for call in made.get("torch.load", []):
            assert "weights_only=True" in map(ast.unparse, call.keywords), path
        for call in made.get("np.load", []):
            assert "allow_pickle" not in ast.unparse(call), path
        if {"pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads"} & made.keys():
            assert any(path.is_relative_to(PACKAGE / room) for room in own_messages), path


def loaded_by(code: str) -> set[str]:
    return {name.partition(".")[0] for name in modules_loaded_by(code)}


def modules_loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return set(output.split())


def test_importing_tuner_loads_neither_ray_nor_torch_nor_pandas() -> None:
    assert loaded_by("import tuner") & HEAVY == set()


def test_what_is_public_is_found_in_the_room_that_type_checkers_are_told() -> None:
    """`tuner` looks names up in a table of its own, as it loads no room before one of its names is used."""
    import tuner

    told = {
        alias.name: node.module
        for block in nodes(PACKAGE / "__init__.py")
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == tuner._ROOM_OF
    assert sorted(told) == sorted(tuner.__all__)
    assert all(getattr(tuner, name) is getattr(sys.modules[told[name]], name) for name in told)
    assert set(told) <= set(dir(tuner))
    with pytest.raises(AttributeError, match="module 'tuner' has no attribute 'studdy'"):
        _ = tuner.studdy  # type: ignore[attr-defined]


def test_the_help_loads_neither_numpy_nor_any_verb() -> None:
    code = "import contextlib, io\nfrom tuner.cli import main\nwith contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(['--help'])"
    loaded = modules_loaded_by(code)
    assert {"numpy", *HEAVY} & loaded == set()
    assert {name for name in loaded if name.startswith("tuner.cli.")} == {
        *("tuner.cli.main", "tuner.cli.outcome", "tuner.cli.verbs"),
    }
    assert loaded & {"tuner.space", "tuner.results", "tuner.study.declaration"} == set()


def test_a_verb_loads_no_other_verb() -> None:
    code = "from tuner.cli.main import parser; parser('check')"
    assert {"tuner.cli.run", "tuner.cli.show", "tuner.cli.resume"} & modules_loaded_by(code) == set()


def test_loading_a_study_file_loads_neither_ray_nor_torch() -> None:
    code = "from tuner import load_study; load_study('search_spaces/fashion_resnet18.py')"
    assert loaded_by(code) & {"ray", "torch", "torchvision"} == set()


def test_reading_a_run_loads_neither_ray_nor_torch() -> None:
    code = "from tuner import Run, find_runs; from tuner.results.tables import trials_table; Run; find_runs('nowhere')"
    assert loaded_by(code) & {"ray", "torch", "torchvision"} == set()


def test_the_search_itself_loads_neither_ray_nor_torch() -> None:
    assert (
        loaded_by("import tuner.loop.search_loop, tuner.loop.earlier_runs, tuner.loop.packing")
        & {"ray", "torch", "torchvision"}
        == set()
    )


def test_the_service_loads_neither_ray_nor_torch_nor_the_driver() -> None:
    loaded = modules_loaded_by("import tuner.service.service, tuner.service.checking.child")
    assert {"ray", "torch", "torchvision", "tuner.driver", "tuner.train"} & loaded == set()


def test_a_star_import_loads_neither_ray_nor_torch_nor_pandas() -> None:
    assert loaded_by("from tuner import *; run, resume, load_model, load_run") & HEAVY == set()


def test_a_search_starts_ray_before_it_loads_ray_tune() -> None:
    """Half a second, and it can be loaded while Ray starts."""
    assert {"ray.tune", "ray.data", "pandas", "torch"} & modules_loaded_by("import tuner.driver") == set()
