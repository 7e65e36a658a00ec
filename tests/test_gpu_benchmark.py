"""What benchmarks/gpu.py does with its rows; most rows are only pretended in full by `--pretend`."""

import json
import time
from pathlib import Path

import pytest
import torchvision

from benchmarks.gpu import FILE, ROWS, main, pack
from benchmarks.gpu_record import PRETENDED, Figures, Goal, Results, Row, Sizes, chosen, perform, run_rows, table
from benchmarks.gpu_searches import unpacked
from benchmarks.plain_loop import write_subset
from tests.commands import ROOT
from tests.forked import run_copy

ABOUT = {"card": "1 x H100", "driver": "580.1", "versions": "torch 2.14"}
QUICK = ("a capture that fails", "memory that runs out")

PRETEND = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from benchmarks.gpu import main

main()
"""

ASKS_NOTHING = """
import sys
sys.path.insert(0, sys.argv[1])
import torch

def asked(*_):
    sys.exit("CUDA was asked")

torch._C._cuda_getDeviceCount = torch._C._cuda_init = torch._C._cuda_getDevice = asked
from benchmarks.gpu import Sizes, about

assert about(Sizes())["versions"].startswith("Python ")
"""


def count(sizes: Sizes, figures: Figures) -> None:
    figures |= {"ms": 0.5, "told": "0.50 ms | a step", "unknown": float("nan")}


def fail(sizes: Sizes, figures: Figures) -> None:
    count(sizes, figures)
    raise ValueError("half-way")


def leave(sizes: Sizes, figures: Figures) -> None:
    raise SystemExit("the command failed")


def hang(sizes: Sizes, figures: Figures) -> None:
    time.sleep(60)


GOALS = (Goal("ms", 0.6, "the floor"), Goal("ms", 0.6, "the floor", most=False), Goal("gone", 1, "nothing"))
ROW, OTHER = Row("count", 1.0, count, GOALS), Row("other", 1.0, count)


def test_rows_are_pretended_where_there_is_no_gpu(tmp_path: Path) -> None:
    options = [option for name in QUICK for option in ("--only", name)]
    done = run_copy(PRETEND, str(ROOT), "--pretend", "--folder", str(tmp_path), *options)
    assert (done.code, done.err) == (0, "")
    found = Results(tmp_path / FILE).read()
    assert sorted(found) == list(QUICK)
    assert [
        (goal["figure"], goal["met"]) for result in found.values() for goal in result["goals"] if not goal["met"]
    ] == []
    failed = found["a capture that fails"]["figures"]
    assert (failed["broken_path"], failed["graph_after_path"]) == ("eager", "graph")
    assert (failed["after"], failed["resumed"], failed["graph_after"] < 1e-4) == (0, 0, True)
    assert any("when stream is capturing" in note for note in failed["notes"])
    limited = found["memory that runs out"]["figures"]
    assert (limited["path"], limited["micro_batch"] <= 4, limited["repeated_steps"] > 1) == ("eager", True, True)


def test_a_row_keeps_its_figures_and_says_which_goals_were_met() -> None:
    found = perform(ROW, Sizes(), 20)
    assert found["figures"]["ms"] == 0.5
    assert [(goal["figure"], goal["found"], goal["met"]) for goal in found["goals"]] == [
        ("ms", 0.5, True),
        ("ms", 0.5, False),
        ("gone", None, False),
    ]
    assert "error" not in found


def test_a_row_that_fails_keeps_what_it_found_and_where_it_failed() -> None:
    found = perform(Row("fail", 1.0, fail), Sizes(), 20)
    assert found["figures"]["ms"] == 0.5
    assert found["error"].splitlines()[0] == "Traceback (most recent call last):"
    assert 'raise ValueError("half-way")' in found["error"]
    assert found["error"].splitlines()[-1] == "ValueError: half-way"
    assert perform(Row("leave", 1.0, leave), Sizes(), 20)["error"].endswith("SystemExit: the command failed")


def test_a_row_that_hangs_is_ended(tmp_path: Path) -> None:
    found = perform(Row("hang", 1.0, hang), Sizes(), 0.5)
    assert (found["error"], found["seconds"] < 20) == ("it gave no answer within 0 s", True)
    run_rows([Row("hang", 0.5, hang)], Sizes(), Results(tmp_path / FILE), 1.4, ABOUT)  # at the end of all rows' time
    assert Results(tmp_path / FILE).read()["hang"]["error"] == "it gave no answer within 1 s"


def test_results_come_one_by_one_and_a_second_call_goes_on_after_a_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(tmp_path / FILE)
    run_rows([ROW], Sizes(), results, 100, ABOUT)
    (line,) = results.file.read_text().splitlines()
    assert json.loads(line)["figures"] == {"ms": 0.5, "told": "0.50 ms | a step", "unknown": None}
    with results.file.open("a") as file:
        file.write('{"row": "other", "seco')
    assert chosen([ROW, OTHER], (), results.read()) == [OTHER]
    run_rows([OTHER], Sizes(), results, 100, ABOUT)
    assert list(results.read()) == ["count", "other"]
    assert chosen([ROW, OTHER], (), results.read()) == []
    assert chosen([ROW, OTHER], ["oth"], results.read()) == [OTHER]  # asked for: again
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("other (")
    assert last.endswith(" s): 0.50 ms / a step")


def test_a_row_that_does_not_fit_any_more_is_skipped_and_a_later_one_may_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results(tmp_path / FILE)
    run_rows([Row("long", 500.0, count), OTHER], Sizes(), results, 100, ABOUT)
    assert list(results.read()) == ["other"]
    assert capsys.readouterr().out.startswith("long: skipped, as it takes about 500 s and 100 s are left\nother (")


def test_the_table_has_a_line_for_each_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(tmp_path / FILE)
    run_rows([ROW, Row("fail", 1.0, fail)], Sizes(), results, 100, ABOUT)
    expected = [
        "1 x H100 (driver 580.1), torch 2.14",
        "",
        "| what | found | goal |",
        "|---|---|---|",
        "| count | 0.50 ms / a step | ms ≤ 0.6 (the floor): met; ms ≥ 0.6 (the floor): **missed**; "
        "gone ≤ 1 (nothing): **missed** |",
        "| fail | 0.50 ms / a step; failed: ValueError: half-way |  |",
    ]
    assert table(results.read().values()).splitlines() == expected
    capsys.readouterr()
    main(["--table", "--folder", str(tmp_path)])
    assert capsys.readouterr().out.splitlines() == expected


def test_packed_images_are_unpacked_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_subset(None, tmp_path / "source", 60, 30)
    pack(tmp_path / "source", tmp_path / "packed")
    assert [file.suffix for file in (tmp_path / "packed").rglob("*ubyte*")] == [".gz"] * 4
    before = torchvision.datasets.FashionMNIST(tmp_path / "source", train=True)
    with unpacked(tmp_path / "packed", 40) as folder:
        after = torchvision.datasets.FashionMNIST(folder, train=True)
        assert len(torchvision.datasets.FashionMNIST(folder, train=False)) == 30
    assert after.data.equal(before.data[:40])
    assert after.targets.equal(before.targets[:40])
    assert capsys.readouterr().out.endswith(" MB of at most 55\n")


def test_the_rows_have_names_of_their_own_and_the_first_call_has_room_for_the_most_informative() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    first = 0.0
    for row in ROWS:
        first += row.seconds
        if row.name == "photos, 224 px, compiled":
            break
    assert first < 560
    assert PRETENDED.pretend


def test_the_process_that_is_copied_for_each_row_never_asks_cuda() -> None:
    done = run_copy(ASKS_NOTHING, str(ROOT))
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--only", "stp", "--folder", "x"],
            "--only needs the beginning of a row's name, got 'stp'; use one of 'pytest -m gpu'",
        ),
        ([], "--folder needs a folder for the results, got none and no $OUT; name one"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    monkeypatch.delenv("OUT", raising=False)
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert message in capsys.readouterr().err
