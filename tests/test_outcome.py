"""What a search is given by its options, and the words and the code that it ends with."""

import argparse
from pathlib import Path

import pytest

from tests.loop.simulation import build, drive, study
from tuner import load_run
from tuner.cli.main import parser
from tuner.cli.outcome import conclude
from tuner.cli.parsing import driver_options
from tuner.history.run_info import FORMAT, write_info
from tuner.storage.folder import LocalFolder
from tuner.text import command


@pytest.mark.parametrize(
    ("status", "reason", "code", "said"),
    [
        ("finished", "trials", 0, None),
        ("interrupted", "Ctrl-C", 130, "interrupted (Ctrl-C)"),
        ("interrupted", "error", 1, "the search was cut off by an error: OSError: full"),
    ],
)
def test_a_search_ends_with_the_code_and_the_words_of_what_ended_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str, reason: str, code: int, said: str | None
) -> None:
    loop = build(study(), tmp_path / "run")
    drive(loop, reports=13)
    loop.end(reason)
    loop.close()
    info = {"format": FORMAT, "study": "simulated", "metric": "loss", "mode": "min", "status": status}
    info |= {"started": "2026-01-31T09:30:00+00:00", "end_reason": reason, "interrupted_by": "OSError: full"}
    write_info(LocalFolder(tmp_path / "run"), info)
    assert conclude(load_run(tmp_path / "run"), argparse.Namespace(json=False)) == code
    printed = capsys.readouterr()
    assert printed.err == (f"{said}; go on with:\n{command('resume', str(tmp_path / 'run'))}\n" if said else "")
    assert printed.out.startswith("best: loss 0.2316 ± 0.0033 over epochs 8 to 9 (trial 00000")


def test_a_search_without_a_winner_ends_with_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = build(study(), tmp_path / "run")
    loop.end("trials")
    loop.close()
    info = {"format": FORMAT, "study": "simulated", "metric": "loss", "mode": "min", "status": "finished"}
    write_info(LocalFolder(tmp_path / "run"), {**info, "started": "2026-01-31T09:30:00+00:00"})
    assert conclude(load_run(tmp_path / "run"), argparse.Namespace(json=False)) == 1
    assert capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run space.py", "resume runs"])
def test_what_a_search_runs_on_is_handed_over_by_name(verb: str) -> None:
    given = (
        "--concurrency 2 --address auto --wandb off --mlflow http://h:5000 --nice 3 --grace 1.5 --notify https://host/a"
    )
    assert driver_options(parser().parse_args([*verb.split(), *given.split()])) == {
        "concurrency": 2,
        "address": "auto",
        "wandb": "off",
        "mlflow": "http://h:5000",
        "nice": 3,
        "grace": 1.5,
        "notify": ["https://host/a"],
    }
    assert driver_options(parser().parse_args(verb.split())) == {"notify": []}
