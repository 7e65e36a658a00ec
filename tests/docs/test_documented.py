"""Whatever a user can write, call or read in a message stands in the documents, so that none is forgotten."""

import argparse
import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import tuner
from docs.draw_rooms import FILE as ROOMS
from docs.draw_rooms import picture
from docs.generate import exported, filled, pages, verbs
from tests.docs.blocks import PAGES, ROOT
from tests.test_architecture import MAY_IMPORT, PACKAGE
from tuner import errors
from tuner.cli.main import parser
from tuner.doctor.checks import CHECKS, Status
from tuner.driver import gpus
from tuner.history import event_lines, events, stacks
from tuner.history.records import STATUSES
from tuner.lifecycle import interruption
from tuner.loop import earlier_runs, limits, packing
from tuner.plots import Plots
from tuner.results import dead
from tuner.results.export import Kind
from tuner.schedule import Scheduler
from tuner.search import SearchAlgorithm, multi_fidelity
from tuner.storage import lease
from tuner.study.budget import LIMITS
from tuner.train.data import cache
from tuner.trial import HYPERPARAMETERS, STRATEGIES, pixels
from tuner.trial.sources import KNOWN_SOURCES
from tuner.trial.tasks import NUMBER, ONE_LABEL, SEVERAL_LABELS

GENERATED = pages()


def page(name: str) -> str:
    return GENERATED.get(name) or filled((ROOT / "docs" / name).read_text(encoding="utf-8"))


def missing(names: Any, text: str, form: str = "`{}`") -> list[str]:
    return [name for name in names if form.format(name) not in text]


def rows(text: str) -> list[str]:
    """The names in code that the rows of a section's tables begin with."""
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


def section(name: str, heading: str) -> str:
    """What a page says below a heading, to the next one of its kind."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^\1 |\Z)", page(name), re.MULTILINE | re.DOTALL)
    assert found, f"{name} has no section {heading}"
    return found[2]


def kinds_of(base: type) -> list[str]:
    """Names of the concrete classes of tuner below a base."""
    subclasses = [kind for kind in base.__subclasses__() if kind.__module__.startswith("tuner.")]
    concrete = {kind.__name__ for kind in subclasses if not inspect.isabstract(kind)}
    return sorted(concrete | {name for kind in subclasses for name in kinds_of(kind)})


# The command line


def arguments(verb: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in verb._actions if action.dest != "help"]


def test_each_verb_and_option_is_in_the_reference_with_a_meaning() -> None:
    text = page("reference/commands.md")
    whole = parser()
    for name, verb, summary in verbs(whole):
        assert summary, name
        part = text.partition(f"\n## `{name}`")[2].partition("\n## ")[0]
        for action in arguments(verb):
            assert action.help, f"{name}: {action.dest} has no help text"
            assert missing(action.option_strings, part, "{}") == [], name
    assert missing(["--version"], text, "{}") == []


def test_readme_or_a_how_to_shows_each_verb() -> None:
    shown = "\n".join(path.read_text(encoding="utf-8") for path in PAGES if "reference" not in path.parts)
    assert [name for name, _, _ in verbs(parser()) if f"tuner {name} " not in shown] == []


# The study file


def test_each_hyperparameter_has_a_section_and_a_row() -> None:
    text = page("reference/hyperparameters.md")
    assert missing(HYPERPARAMETERS, text, "\n## `{}` ") == []
    assert missing(HYPERPARAMETERS, text, "\n| `{}` |") == []


@pytest.mark.parametrize("kind", [tuner.Study, tuner.ImageClassifier, tuner.Budget, tuner.Resources, tuner.Failures])
def test_each_field_of_a_declaration_is_in_its_section(kind: type) -> None:
    names = [field.name for field in fields(kind) if field.name != "_"]  # type: ignore[arg-type]
    assert sorted(rows(section("reference/study-file.md", kind.__name__))) == sorted(names)


def test_each_data_set_by_name_is_in_the_reference() -> None:
    assert missing(KNOWN_SOURCES, section("reference/study-file.md", "ImageClassifier"), '`"{}"`') == []


def test_each_setting_of_an_algorithm_is_shown() -> None:
    text = page("reference/study-file.md")
    for name in kinds_of(SearchAlgorithm) + kinds_of(Scheduler):
        assert f"\n| `{name}(" in text, name
        names = [field.name for field in fields(getattr(tuner, name))]
        assert missing(names, text.partition(f"\n| `{name}(")[2].partition(")`")[0], "{}=") == [], name
    assert missing([field.name for field in fields(tuner.History)], page("how-to/earlier-runs.md"), "{}=") == []


def test_each_setting_of_an_algorithm_is_explained_by_its_docstring() -> None:
    for kind in exported(SearchAlgorithm) + exported(Scheduler):
        assert missing([field.name for field in fields(kind)], kind.__doc__ or "", "{}") == [], kind


def test_the_default_stands_first() -> None:
    assert (exported(SearchAlgorithm)[0], exported(Scheduler)[0]) == (tuner.MultiFidelityGP, tuner.ASHA)


def test_each_domain_is_in_the_table() -> None:
    constructors = importlib.import_module("tuner.space.constructors")
    names = [name for name in tuner.__all__ if name in vars(constructors)]
    assert len(names) == 13
    assert missing(names, page("reference/study-file.md"), "\n| `{}(") == []


def test_each_limit_and_strategy_is_in_its_guide() -> None:
    assert missing([limit.name for limit in LIMITS], page("how-to/budget.md"), "\n| `{}` |") == []
    assert missing([limit.option for limit in LIMITS], page("how-to/budget.md"), "`{} ") == []
    assert missing(STRATEGIES, page("how-to/several-devices.md"), '\n| `"{}"` |') == []


# Python


def test_each_public_name_is_in_the_api() -> None:
    assert missing(tuner.__all__, page("reference/api.md"), "::: tuner.{}\n") == []


def test_each_plot_and_export_is_in_its_guide() -> None:
    assert missing(Plots.names(), page("how-to/notebooks.md"), "run.plot.{}()") == []
    assert missing(get_args(Kind), page("how-to/export.md"), "--to {} ") == []


def test_each_check_of_the_machine_is_in_its_guide() -> None:
    assert missing(CHECKS, page("how-to/doctor.md")) == []
    assert missing(get_args(Status), page("how-to/doctor.md"), "\n| `{}` |") == []


def test_each_environment_variable_is_in_the_reference() -> None:
    found = {name for path in PACKAGE.rglob("*.py") for name in re.findall(r"\bTUNER_[A-Z_]+", path.read_text())}
    assert found
    assert missing(sorted(found), page("reference/study-file.md")) == []


# What a run says


def calls_of(*names: str) -> Iterator[tuple[Path, ast.Call]]:
    """Calls in tuner of functions or methods with these names."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in names:
                yield path, node


def constant(path: Path, node: ast.expr) -> str:
    """A text that is written out, or that a constant of the module holds."""
    if isinstance(node, ast.Name):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        return str(getattr(importlib.import_module(module), node.id))
    return str(ast.literal_eval(node))


def test_each_code_of_a_notice_is_in_the_troubleshooting() -> None:
    given = [
        (path, word.value)
        for path, call in calls_of("notice", "_notice")
        for word in call.keywords
        if word.arg == "code" and not (isinstance(word.value, ast.Name) and word.value.id == "code")
    ]
    computed = [ast.unparse(value) for _, value in given if not isinstance(value, ast.Constant | ast.Name)]
    assert computed == ["news[1]"]  # of packing, whose codes are these constants
    codes = {constant(path, value) for path, value in given if ast.unparse(value) not in computed}
    codes |= {
        earlier_runs.LEARNED,
        earlier_runs.PORTFOLIO,
        packing.NO_MPS,
        packing.UNKNOWN,
        f"{packing.AT_ONCE}N",
        gpus.FIRST_LOOK,
        dead.UNREAD,
        dead.ALIKE,
    }
    assert {"learned", "cannot_pause", "study_changed"} <= codes
    assert sorted(rows(section("troubleshooting.md", "Notices"))) == sorted(codes)


def test_numbers_in_the_text_are_those_of_the_code() -> None:
    pace = lease.Pace()
    for name, sentence in {
        "explanation/search.md": f"takes at most {multi_fidelity.LARGEST_MODEL} values",
        "explanation/data.md": f"nobody used for {cache.DAYS_KEPT:.0f} days",
        "explanation/checkpoints.md": f"otherwise {pace.expire_seconds:.0f} s after its last renewal",
        "how-to/resume.md": f"`--grace` seconds ({interruption.GRACE_SECONDS:.0f} by default)",
        "how-to/object-storage.md": f"within {events.OBJECT_STORE_SECONDS:.0f} s of the event",
        "how-to/budget.md": f"when its first {limits.MOST_FAILURES} trials all fail",
        "troubleshooting.md": f"as {tuner.Failures().alike} trials failed with the same error",
        "reference/study-file.md": f"{pixels.MOST_PIXELS:,} pixels by default",
    }.items():
        assert sentence in page(name), f"{name} should say: {sentence}"


def test_each_class_of_error_is_in_the_troubleshooting() -> None:
    found = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.TunerError)
    ]
    assert len(found) >= 9
    assert sorted(rows(section("troubleshooting.md", "Errors"))) == sorted(found)


def test_each_event_is_in_the_reference() -> None:
    emitted = {call.args[0].value for _, call in calls_of("_emit") if isinstance(call.args[0], ast.Constant)}
    kinds = {str(kind) for kind in emitted} | {*event_lines._NEEDED, *event_lines._OPTIONAL}
    assert {"trial_started", "study_interrupted", "notice"} <= kinds
    assert sorted(rows(section("reference/metrics-and-events.md", "Events"))) == sorted(kinds)


def test_each_metric_status_and_cause_is_in_the_reference() -> None:
    of_classes = "Metrics of an image classifier"
    assert rows(section("reference/metrics-and-events.md", of_classes)) == list(ONE_LABEL.directions(()))
    assert rows(section("reference/metrics-and-events.md", "Metrics by name")) == list(ONE_LABEL.named)
    for task, title in ((SEVERAL_LABELS, "Metrics of several labels"), (NUMBER, "Metrics of a number")):
        told = [*(f"val_{name}" for name in task.metrics), *task.named]
        assert rows(section("reference/metrics-and-events.md", title)) == told
    assert missing(STATUSES, page("reference/run-folder.md")) == []
    causes = [
        "lost",
        stacks.HUNG,
        *(kind.cause for kind in (tuner.TrialError, errors.TrialDiverged, errors.TrialOutOfMemory)),
    ]
    assert missing(causes, page("reference/run-folder.md"), "\n| `{}` |") == []


# The documents themselves


def test_readme_is_read_in_a_minute_and_its_picture_is_small() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
    assert (ROOT / "docs/images/report.png").stat().st_size < 200_000


def test_the_picture_of_the_rooms_is_as_the_architecture_is_held() -> None:
    assert picture(MAY_IMPORT) == ROOMS.read_text(encoding="utf-8"), "draw it again: python -m docs.draw_rooms"


def test_contributing_says_where_each_room_is() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = {room: f"`{room}/`" if (PACKAGE / room).is_dir() else f"`{room}.py`" for room in MAY_IMPORT}
    assert [room for room, place in places.items() if place not in text] == []


def test_no_page_names_a_path_of_somebodys_machine() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in [*PAGES, ROOT / "CHANGELOG.md"]} | GENERATED
    private = re.compile(r"/(work|home(?!/tuner\b)|root|Users|mnt|tmp)/")  # that of a container's user is ours
    assert {name: found[0] for name, text in texts.items() if (found := private.search(text))} == {}


def test_each_target_of_make_that_a_page_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name for path in PAGES for name in re.findall(r"^make ([a-z]+)|`make ([a-z]+)`", path.read_text(), re.MULTILINE)
    }
    assert {one or other for one, other in named} == targets - {"clean"}


def test_pre_commit_runs_what_make_check_runs() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"^\s+entry: (.*)$", text, re.MULTILINE) == ["make check"]
