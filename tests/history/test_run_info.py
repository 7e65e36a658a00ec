import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.history.damage import ODD
from tests.loop.simulation import study
from tests.results.simulated import SPACE, simulated
from tests.results.test_run import INFO, refusal
from tests.trial.curve import Curve
from tuner import Run, StudyError, load_run, refine
from tuner.cli import main
from tuner.errors import RunFolderError
from tuner.history.run_info import _NEEDED, _OPTIONAL, FORMAT, read_info, write_info
from tuner.loop.earlier_runs import learned
from tuner.results.run_folders import survey
from tuner.space import Space
from tuner.storage.folder import LocalFolder
from tuner.storage.locations import require_own
from tuner.storage.object_folder import ObjectFolder

FORMAT_1 = Path(__file__).parent / "format_1"


def wrote(folder: Path, **info: Any) -> LocalFolder:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**INFO, **info}))
    return LocalFolder(folder)


# Fields


@pytest.mark.parametrize("name", _OPTIONAL)
def test_an_optional_field_of_another_type_counts_as_not_given_and_is_told(tmp_path: Path, name: str) -> None:
    _, is_sound, default = _OPTIONAL[name]
    told = 0
    for odd in ODD:
        info, damages = read_info(wrote(tmp_path, **{name: odd}))
        if odd is None or odd != odd:
            assert (info[name], damages) == (default, [])
        elif is_sound(odd):
            assert (info[name], damages) == (odd, [])
        else:
            told += 1
            assert info[name] == default
            assert damages[0].startswith("run.json needs ")
            assert damages[0].endswith("; it is left out")
    assert told
    assert read_info(wrote(tmp_path))[0][name] == default


@pytest.mark.parametrize("name", _NEEDED)
def test_a_needed_field_of_another_type_is_refused(tmp_path: Path, name: str) -> None:
    assert refusal(wrote(tmp_path, **{name: 3}).path) == (
        f"run.json needs {_NEEDED[name][0]} as {name}, got 3 in '{tmp_path}'; restore it"
    )
    for odd in [*ODD, "sideways"]:
        if not _NEEDED[name][1](odd):
            with pytest.raises(RunFolderError, match=r"^run\.json needs .* as "):
                read_info(wrote(tmp_path, **{name: odd}))


@pytest.mark.parametrize(
    ("value", "shown"), [("é" * 6 + "abcd", r"'" + r"\xe9" * 6 + "abcd'"), ("x" * 39, "'" + "x" * 39 + "…")]
)
def test_what_stands_there_instead_is_shown_in_at_most_40_ascii_characters(
    tmp_path: Path, value: str, shown: str
) -> None:
    assert f", got {shown} in " in refusal(wrote(tmp_path, status=value).path)


def test_fields_of_newer_versions_are_kept(tmp_path: Path) -> None:
    info, damages = read_info(wrote(tmp_path, lease={"holder": "me"}))
    assert (info["lease"], damages) == ({"holder": "me"}, [])


def test_two_runs_share_no_defaults(tmp_path: Path) -> None:
    one, other = (read_info(wrote(tmp_path / name))[0] for name in "ab")
    one["options"]["trials"] = 3
    assert (other["options"], read_info(wrote(tmp_path / "c"))[0]["options"]) == ({}, {})


def test_where_the_file_cannot_be_used_but_events_can_it_is_said(tmp_path: Path) -> None:
    simulated(tmp_path)
    (tmp_path / "run.json").write_text("{")
    assert ", got a damaged one in " in refusal(tmp_path)
    assert "; restore it, as the events in events/ are still there (" in refusal(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(
        RunFolderError, match=r"which has none; check the path, as the events in events/ are still there$"
    ):
        Run(LocalFolder(tmp_path))


def test_a_file_that_may_not_be_read_is_refused_and_hides_no_other_run(tmp_path: Path) -> None:
    simulated(tmp_path / "a" / "1")
    wrote(tmp_path / "a" / "2")
    (tmp_path / "a" / "2" / "run.json").unlink()
    (tmp_path / "a" / "2" / "run.json").symlink_to("run.json")  # as unreadable, for root too
    wrote(tmp_path / "a" / "3", status="odd")
    runs, refused = survey(tmp_path)
    assert [run.path for run in runs] == [str(tmp_path / "a" / "1")]
    assert [text.split(",")[0] for text in refused] == ["run.json needs one of running"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_what_permissions_keep_from_a_reader_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = Path(
        shutil.copytree(simulated(tmp_path / "a" / "1").path, "/tmp/" + tmp_path.name + "/a/1")
    ).parent.parent
    simulated(storage / "a" / "2")
    simulated(storage / "b" / "1")
    for verb in (["show"], ["show", "--json"]):  # loads all modules, which another user may not be able to
        main([*verb, str(storage / "a" / "1")])
    main(["runs", "--storage", str(storage)])
    learned(study(space=SPACE), storage)
    capsys.readouterr()
    (storage / "a" / "1" / "run.json").chmod(0)
    (storage / "a" / "2" / "events").chmod(0)
    (storage / "b").chmod(0)
    os.seteuid(65534)
    try:
        codes = [
            main([*verb, str(storage / path)])
            for verb in (["show"], ["show", "--json"])
            for path in ("a/1", "a/2", "b/1")
        ]
        listing = main(["runs", "--storage", str(storage)])
        found = learned(study(space=SPACE), storage)
    finally:
        os.seteuid(0)
        shutil.rmtree(storage)
    assert (codes, listing, found.configs) == ([2, 0, 2, 2, 0, 2], 0, ())
    told = capsys.readouterr().err
    assert "run.json needs to be a file that can be read, got one in " in told
    assert "note: events/ can't be read (Permission denied)" in told
    assert "Traceback" not in told


# Formats


def test_what_is_written_is_of_this_format(tmp_path: Path) -> None:
    for given, written in ((1, 2), (2, 2), (FORMAT, 3)):  # 3 only for values that JSON doesn't have
        write_info(LocalFolder(tmp_path), {**INFO, "format": given})
        assert json.loads((tmp_path / "run.json").read_text())["format"] == written


@pytest.mark.parametrize("odd", [0, -1, True, "2", 1.5, None])
def test_a_format_is_a_count(tmp_path: Path, odd: object) -> None:
    wrote(tmp_path, format=odd)
    assert refusal(tmp_path) == f"run.json needs to describe a run, got something else in '{tmp_path}'; check the path"


@pytest.fixture
def format_1(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FORMAT_1, tmp_path / "runs" / "format-1" / "1"))


def test_a_run_of_format_1_is_read(format_1: Path) -> None:
    run = load_run(format_1)
    assert (run.info["format"], run.damages, run.status) == (1, [], "finished")
    assert run.best is not None
    assert (run.best.trial, run.best_epoch, round(run.record.best_value or 0, 4)) == ("00005", 9, 0.1556)
    assert (len(run.record.trials), run.record.epochs()) == (6, 54)
    assert run.space.names == ("lr", "kind", "momentum") or list(run.space.names) == ["lr", "kind", "momentum"]
    assert len(run.importance()) == 3


@pytest.mark.parametrize(
    "arguments",
    [["show", "RUN"], ["show", "RUN", "--trial", "3", "--json"], ["runs", "--storage", "STORAGE"], ["report", "RUN"],
     ["compare", "RUN", "RUN"], ["export", "RUN", "--to", "csv", "OUT"], ["export", "RUN", "--to", "parquet", "OUT"],
     ["export", "RUN", "--to", "optuna", "OUT"], ["export", "RUN", "--to", "tensorboard", "OUT"],
     ["refine", "RUN", "-o", "HOME/next.py", "--trust"]],
    ids=" ".join,
)  # fmt: skip
def test_every_verb_reads_a_run_of_format_1(
    format_1: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    home = format_1.parent.parent.parent
    places = {"RUN": format_1, "STORAGE": format_1.parent.parent, "OUT": home / "out", "HOME": home}
    shutil.copy(format_1 / "study.py", home / "study.py")
    info = json.loads((format_1 / "run.json").read_text())
    (format_1 / "run.json").write_text(json.dumps({**info, "study_file": str(home / "study.py")}))
    filled = ["/".join(str(places.get(part, part)) for part in one.split("/")) for one in arguments]
    assert main(filled) == 0
    told = capsys.readouterr()
    assert told.out
    assert told.err == ""


class AnyCurve(Curve):
    """A trial that is no function, and takes any space."""

    def check(self, space: Space) -> None:
        return


def test_a_run_of_format_1_is_learned_from(format_1: Path) -> None:
    space = load_run(format_1).space
    assert learned(study(space=space, trial=AnyCurve()), format_1.parent.parent).studies == ("format-1/1",)
    assert (
        learned(study(space=space), format_1.parent.parent).studies == ()
    )  # a function, and it says nothing of its own


# Whose code is run

TRACE = "from pathlib import Path\nPath(__file__).with_name('executed').touch()\n"


@pytest.fixture
def traced(format_1: Path, tmp_path: Path) -> Path:
    """A run whose study.py leaves a file beside it when it is run, and that doesn't record its space."""
    (format_1 / "study.py").write_text(TRACE + (format_1 / "study.py").read_text())
    info = json.loads((format_1 / "run.json").read_text())
    original = str(format_1 / f"{tmp_path.name}.py")  # a name that no other test's file has
    (format_1 / "run.json").write_text(json.dumps({**info, "space": None, "study_file": original}))
    return format_1


@pytest.mark.parametrize(
    "arguments",
    [["show", "RUN"], ["show", "RUN", "--json"], ["runs", "--storage", "RUN/.."], ["report", "RUN"],
     ["compare", "RUN", "RUN", "--html", "RUN/page.html"], ["export", "RUN", "--to", "csv", "RUN/out"],
     ["export", "RUN", "--to", "optuna", "RUN/out"], ["export", "RUN", "--to", "tensorboard", "RUN/out"]],
    ids=" ".join,
)  # fmt: skip
def test_a_verb_that_only_reads_never_runs_the_folders_code(traced: Path, arguments: list[str]) -> None:
    assert main([one.replace("RUN", str(traced)) for one in arguments]) == 0
    assert not (traced / "executed").exists()


def test_a_run_that_does_not_record_its_space_has_no_importance_and_says_so(traced: Path) -> None:
    from tuner.html_report import report_html

    run = load_run(traced)
    assert (run.importances, list(run.space.names), run.damages) == ((), [], [])
    assert "The run doesn't record its search space, so it is unknown which hyperparameters mattered." in report_html(
        run
    )


def test_refine_runs_the_code_of_the_users_own_folder(traced: Path) -> None:
    assert refine(load_run(traced)).study.name == "format-1-grid"
    assert (traced / "executed").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize("what", [".", "study.py"])
def test_refine_runs_somebody_elses_code_only_where_it_is_trusted(
    traced: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    os.chown(traced / what, 65534, 65534)
    assert main(["refine", str(traced), "-o", str(traced / "next.py")]) == 2
    assert capsys.readouterr().err == (
        f"tuner: only your own code may run, got '{traced}', which belongs to another user; read its study.py, and if "
        "you trust it add --trust (trust=True from Python)\n"
    )
    assert not (traced / "executed").exists()
    assert main(["refine", str(traced), "-o", str(traced / "next.py"), "--trust"]) == 0
    assert (traced / "executed").exists()


def test_code_on_object_storage_is_nobodys_own(tmp_path: Path) -> None:
    from pyarrow.fs import LocalFileSystem

    (tmp_path / "study.py").write_text("")
    with pytest.raises(RunFolderError, match="got 's3://bucket/run', which lies on object storage, where anybody"):
        require_own(ObjectFolder("s3://bucket/run", LocalFileSystem(), str(tmp_path)), "study.py")
    require_own(LocalFolder(tmp_path), "study.py")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_predict_runs_somebody_elses_model_only_where_it_is_trusted(
    traced: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = {"model": "net()", "data": "digits", "weights": "None", "classes": ["a", "b"],
            "inputs": {"channels": 1, "image_size": 32, "normalisation": {"mean": [0.5], "sd": [0.5]}}}  # fmt: skip
    (traced / "best").mkdir(exist_ok=True)
    (traced / "best" / "model.json").write_text(json.dumps(card))
    os.chown(traced, 65534, 65534)
    assert main(["predict", str(traced), "image.png"]) == 2
    assert "tuner: only your own code may run, got " in capsys.readouterr().err
    assert not (traced / "executed").exists()
    assert main(["predict", str(traced), "image.png", "--trust"]) == 2  # its study has no model
    assert "a model needs an ImageClassifier, got train " in capsys.readouterr().err
    assert (traced / "executed").exists()


def test_names_in_a_refined_study_never_become_code(traced: Path) -> None:
    found = refine(load_run(traced))
    text = found.text(traced / "next.py")
    assert text.startswith('"""')
    from dataclasses import replace

    name = '"""\nraise SystemExit("run")\n"""'
    hostile = replace(found, study=replace(found.study, metric=name))
    compiled = compile(hostile.text(traced / "next.py"), "next.py", "exec")
    assert compiled.co_consts[0].count('"""') == 2


def test_without_its_study_file_a_run_is_not_refined(traced: Path) -> None:
    (traced / "study.py").unlink()
    with pytest.raises(StudyError, match=r"a run needs its study.py, got none in "):
        refine(load_run(traced))
