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
    "errors": (set(), set()),
    "text": (set(), set()),
    "machine": ({"errors"}, set()),
    "space": ({"errors"}, set()),
    "schedule": ({"errors", "space"}, set()),
    "search": ({"errors", "machine", "space"}, {"hyperopt", "optuna", "scipy"}),
    "storage": ({"errors", "text", "machine"}, {"huggingface_hub", "obstore"}),
    "trial": ({"errors", "machine", "space", "storage"}, set()),
    "study": ({"errors", "machine", "space", "schedule", "search", "trial"}, set()),
    "train": ({"errors", "machine", "storage", "trial"}, {"timm", "torch", "torchvision", "transformers"}),
    "doctor": ({"errors", "machine", "trial", "train"}, {"torch", "torchvision"}),
    "history": ({"errors", "text", "machine", "space", "storage", "study"}, set()),
    "results": (
        {
            *("errors", "text", "machine", "space", "schedule", "search", "storage", "trial", "study"),
            *("history",),
        },
        {"optuna", "pandas", "scipy"},
    ),
    "inspection": (
        {"errors", "space", "storage", "trial", "train", "history", "results"},
        {"timm", "torch", "torchvision", "transformers"},  # which load what is exported for them
    ),
    "orders": ({"errors", "text", "space", "storage", "study", "history", "results"}, set()),
    "plots": ({"space", "search", "trial", "history", "results"}, {"pandas"}),
    "html_report": ({"errors", "text", "history", "results", "plots"}, {"pandas"}),
    "loop": (
        {
            *("errors", "text", "space", "schedule", "search", "storage", "trial", "study"),
            *("history", "results", "orders"),
        },
        set(),
    ),
    "worker": (
        {
            *("errors", "machine", "space", "storage", "trial", "study", "train", "history"),
            *("inspection",),
        },
        {"ray", "torch"},
    ),
    "lifecycle": (
        {
            *("errors", "text", "machine", "space", "storage", "study", "history", "results"),
            *("orders", "html_report", "loop"),
        },
        set(),
    ),
    "replay": (
        {
            *("errors", "machine", "space", "storage", "trial", "study", "history", "results"),
            *("worker",),
        },
        set(),
    ),
    "label_errors": (
        {
            *("errors", "text", "machine", "storage", "trial", "study", "train", "history", "results"),
            *("inspection", "html_report", "lifecycle", "first_study"),
        },
        {"torch"},
    ),
    "service": (
        {
            *("errors", "text", "machine", "space", "storage", "study", "history", "results"),
            *("orders", "plots", "html_report"),
        },
        {"argon2", "fastapi", "prometheus_client", "uvicorn"},
    ),
    "mirrors": (
        {
            *("errors", "text", "machine", "space", "storage", "history", "results", "plots"),
            *("html_report",),
        },
        {"mlflow", "pandas", "wandb"},
    ),
    "driver": (
        {
            *("errors", "machine", "space", "schedule", "search", "storage", "trial", "study"),
            *("doctor", "history", "results", "loop", "worker", "lifecycle", "mirrors"),
        },
        {"ray"},
    ),
    "first_study": ({"errors", "machine", "space", "storage", "trial", "study", "driver"}, set()),
    "console": (
        {
            *("errors", "text", "space", "trial", "study", "doctor", "history", "results"),
            *("inspection", "driver", "first_study"),
        },
        {"rich"},
    ),
    "api": (
        {
            *("errors", "machine", "trial", "study", "history", "results", "inspection", "orders", "plots"),
            *("worker", "lifecycle", "replay", "driver", "console", "label_errors", "storage"),
        },
        {"lightning", "pandas", "ray", "transformers"},
    ),
    "cli": (
        {
            *("errors", "text", "machine", "space", "search", "storage", "trial", "study"),
            *(
                "doctor",
                "results",
                "inspection",
                "orders",
                "html_report",
                "loop",
                "lifecycle",
                "replay",
                "label_errors",
            ),
            *("service", "mirrors", "worker", "driver", "first_study", "console"),
        },
        set(),
    ),
    "ask_tell": (
        {
            *("errors", "text", "machine", "space", "schedule", "search", "storage", "study"),
            *("history", "results", "loop", "lifecycle", "api"),
        },
        set(),
    ),
}
HEAVY = {
    *("ray", "torch", "torchvision", "hyperopt", "optuna", "pandas", "scipy", "wandb", "rich", "obstore"),
    *(
        "mlflow",
        "timm",
        "transformers",
        "lightning",
        "huggingface_hub",
        "fastapi",
        "uvicorn",
        "argon2",
        "prometheus_client",
    ),
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


# names that modules of several rooms share, because they do the same there; another name stands for one thing
SAME_ROLE = {
    "__init__",
    *("function", "external"),  # a kind of trial, and its work
    *("groups", "space", "summary", "tables"),  # something computed, and how it is shown
    *("confirming", "refining", "run", "steering", "detached", "studies", "queue", "users"),  # a verb, and what it does
    *("base", "errors", "events", "speed"),
    *("one_label", "several_labels", "number"),  # tasks
}


def test_modules_of_one_name_do_the_same_in_their_rooms() -> None:
    rooms: dict[str, set[str]] = {}
    for path in MODULES:
        rooms.setdefault(path.stem, set()).add(room_of(path))
    assert {name: found for name, found in rooms.items() if len(found) > 1 and name not in SAME_ROLE} == {}


def test_the_type_of_a_mode_is_written_once() -> None:
    written = [
        path
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Subscript) and ast.unparse(node) in ("Literal['min', 'max']", "Literal['max', 'min']")
    ]
    assert written == [PACKAGE / "space" / "mode.py"]


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


@pytest.mark.parametrize(
    ("library", "modules"), [("wandb", ["wandb.py", "wandb_summary.py"]), ("mlflow", ["mlflow.py"])]
)
def test_the_modules_of_its_mirror_alone_import_a_service_s_client(library: str, modules: list[str]) -> None:
    importing = [path.name for path in MODULES if library in {name.split(".")[0] for name in imports(path)}]
    assert importing == modules


# The rooms that know one kind of trial: they do its work.
IMPLEMENTATIONS = (
    "train/",
    "inspection/",
    "first_study/",
    "label_errors/",
    "worker/classification.py",
    "worker/function.py",
    "worker/network_cost.py",
    "worker/several.py",
    "worker/together.py",
    "worker/external.py",
    "doctor/trial_steps.py",
    "study/as_json.py",
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
