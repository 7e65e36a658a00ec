"""Every verb that reads a run, on run folders damaged in many ways: an exit code and a sentence, never a traceback."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.history.damage import FILES, KINDS, Damage, fields_of, whole
from tests.history.test_run_info import AnyCurve
from tests.loop.simulation import study
from tests.results.simulated import SPACE
from tuner import ASHA, Budget
from tuner.cli import main
from tuner.loop.earlier_runs import learned
from tuner.results import importance

# of numpy, for metrics near the largest float
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered in:RuntimeWarning")

DAMAGED, NEIGHBOUR = "1", "2"
QUICK = {
    "show": ["RUN"],
    "show --json": ["RUN", "--json"],
    "show --trial": ["RUN", "--trial", "0"],
    "show --watch": ["RUN", "--watch"],
    "runs": ["--storage", "STORAGE"],
    "runs --json": ["--storage", "STORAGE", "--json"],
    "compare": ["RUN", "OTHER"],
    "export csv": ["RUN", "--to", "csv", "OUT/csv"],
    "export parquet": ["RUN", "--to", "parquet", "OUT/parquet"],
    "refine": ["RUN", "-o", "OUT/next.py"],
}
SLOW = {
    "report": ["RUN"],
    "compare --html": ["RUN", "OTHER", "--html", "OUT/page.html"],
    "export tensorboard": ["RUN", "--to", "tensorboard", "OUT/boards"],
    "export optuna": ["RUN", "--to", "optuna", "OUT/study.db"],
}
STARTING = {"resume": ["RUN", "--wandb", "off"], "predict": ["RUN", "image.png"]}
# One of each sort, for verbs that take a second
FEW = (
    "events/000001.jsonl flipped", "events/ removed", "times turned round", "best/metrics.json flipped",
    "best/confusion_matrix.json a list", "best/mistakes.json nested", "events with odd metrics 2",
    "events with odd metrics 9", "events with odd config 1", "events with odd config 4", "run.json space odd 18",
    "run.json space odd 19", "run.json rungs odd 13",
)  # fmt: skip


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage folder with the run that is damaged, and another."""
    storage = tmp_path_factory.mktemp("pattern")
    for name in (DAMAGED, NEIGHBOUR):
        whole(storage / "simulated" / name)
    return storage


@pytest.fixture(scope="module")
def kinds(pattern: Path) -> dict[str, Damage]:
    return {**KINDS, **dict(fields_of(pattern / "simulated" / DAMAGED))}


@pytest.fixture(autouse=True)
def _small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_RESAMPLES", "FEWEST_RESAMPLES", "TREES"):
        monkeypatch.setattr(importance, name, 2)
    monkeypatch.setattr(importance, "POINTS", 64)


def damaged(pattern: Path, storage: Path, damage: Damage) -> Path:
    """A copy of the pattern whose first run is damaged."""
    shutil.rmtree(storage, ignore_errors=True)
    shutil.copytree(pattern, storage)
    (storage / "out").mkdir()
    damage(storage / "simulated" / DAMAGED)
    return storage


def perform(storage: Path, verbs: dict[str, list[str]], capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """Run the verbs on the damaged run; each ends with an exit code and clean text."""
    places = {
        "RUN": storage / "simulated" / DAMAGED,
        "OTHER": storage / "simulated" / NEIGHBOUR,
        "STORAGE": storage,
        "OUT": storage / "out",
    }
    for verb, arguments in verbs.items():
        filled = ["/".join(str(places.get(part, part)) for part in one.split("/")) for one in arguments]
        code = main([verb.partition(" ")[0], *filled])
        told = capsys.readouterr()
        assert code in (0, 1, 2), (kind, verb)
        assert code != 2 or "tuner: " in told.err, (kind, verb)
        assert "Traceback" not in told.out + told.err, (kind, verb)
        assert not any(sign in told.out + told.err for sign in "\x1b\x07\r"), (kind, verb)


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_keeps_no_verb_waiting(
    pattern: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    signal.alarm(120)  # a pipe in place of a file would keep its reader for ever
    for odd in ("a pipe", "a socket", "a folder", "huge"):
        storage = damaged(pattern, tmp_path / "storage", KINDS[f"{name} {odd}"])
        few = {verb: QUICK[verb] for verb in ("show", "runs", "compare")}
        perform(storage, few | {"report": SLOW["report"]} | STARTING, capsys, f"{name} {odd}")
        declared = study(space=SPACE, trial=AnyCurve(), scheduler=ASHA(), budget=Budget(trials=8, max_epochs=9))
        assert f"simulated/{NEIGHBOUR}" in learned(declared, storage).studies
    signal.alarm(0)


@pytest.mark.slow
def test_no_damage_to_files_and_events_makes_a_verb_raise(
    pattern: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = {kind: damage for n, (kind, damage) in enumerate(KINDS.items()) if " odd " not in kind or n % 4 == 0}
    assert len(chosen) > 150
    for kind, damage in chosen.items():
        perform(damaged(pattern, tmp_path / "storage", damage), QUICK, capsys, kind)


@pytest.mark.slow
def test_no_field_of_another_type_makes_a_verb_raise(
    pattern: Path, kinds: dict[str, Damage], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_fields = {kind: damage for kind, damage in kinds.items() if kind not in KINDS}
    assert len(of_fields) > 900
    few = {name: QUICK[name] for name in ("show", "runs --json", "refine")}
    for kind, damage in list(of_fields.items())[::5]:
        perform(damaged(pattern, tmp_path / "storage", damage), few, capsys, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FEW)
def test_no_damage_makes_a_page_or_an_export_raise(
    pattern: Path, kinds: dict[str, Damage], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    perform(damaged(pattern, tmp_path / "storage", kinds[kind]), SLOW, capsys, kind)


@pytest.mark.slow
def test_no_damage_makes_resume_or_predict_raise(
    pattern: Path, kinds: dict[str, Damage], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, damage in kinds.items():
        if kind in FEW or kind.startswith(
            ("run.json options", "run.json working", "study.py", "best/model", "best/config")
        ):
            perform(damaged(pattern, tmp_path / "storage", damage), STARTING, capsys, kind)


@pytest.mark.slow
def test_a_search_beside_a_damaged_run_learns_from_the_others(
    pattern: Path, kinds: dict[str, Damage], tmp_path: Path
) -> None:
    declared = study(space=SPACE, trial=AnyCurve(), scheduler=ASHA(), budget=Budget(trials=8, max_epochs=9))
    for kind, damage in list(kinds.items())[::17]:
        storage = damaged(pattern, tmp_path / "storage", damage)
        assert f"simulated/{NEIGHBOUR}" in learned(declared, storage).studies, kind
