from pathlib import Path

import pytest

from tests.service.submissions import STUDY, submission
from tuner.service.bundles import check_bundle, digest_of, lay_out, remove, written
from tuner.service.errors import Code, ServiceError
from tuner.service.model import Limits, Submission

LIMITS = Limits()


def refusal(sent: Submission, limits: Limits = LIMITS) -> ServiceError:
    with pytest.raises(ServiceError) as refused:
        check_bundle(sent, limits)
    return refused.value


@pytest.mark.parametrize(
    "path",
    [
        *("../x.py", "/etc/passwd", "a/../b.py", "a//b.py", "a/./b.py", "", "a/", ".", "..", "a\\b.py", "C:x.py"),
        *("a\0b.py", "a\nb.py", "\u202egnp.py", "\udcff.py", "x" * 256 + ".py", "/".join("abcdefghijklmnopq")),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(path: str) -> None:
    refused = refusal(submission(files={path: b""}))
    assert refused.code is Code.REFUSED
    assert refused.rule == "the files of a submission lie in the study file's folder or below it"


@pytest.mark.parametrize(
    "pair",
    [
        ("a.py", "A.py"),
        ("x/a.py", "X/b.py"),
        ("a", "a/b.py"),
        ("stra\u00dfe.py", "STRASSE.py"),
        ("\u00e9.py", "e\u0301.py"),
    ],
)
def test_names_that_are_one_on_some_file_systems_are_refused(pair: tuple[str, str]) -> None:
    assert "names that differ by more than case" in str(refusal(submission(files=dict.fromkeys(pair, b""))))


def test_limits_hold_on_both_sides() -> None:
    size = len(STUDY.encode())
    tight = Limits(study_file_bytes=size, bundle_bytes=size + 10, bundle_files=3)
    check_bundle(submission(files={"a.py": b"x" * 9, "b.py": b"x"}), tight)
    assert "at most 3 files, got 4" in str(refusal(submission(files=dict.fromkeys("abc", b"")), tight))
    assert refusal(submission(files={"a.py": b"x" * 11}), tight).code is Code.TOO_LARGE
    assert "bytes in its study file" in str(refusal(submission(STUDY + "\n"), tight))


@pytest.mark.parametrize("main", ["other.py", "models/net.py", "parabola.txt", ""])
def test_the_study_file_lies_at_the_top(main: str) -> None:
    files = {"models/net.py": b"", "parabola.txt": b""}
    assert "a submission needs its study file" in str(refusal(submission(files=files, main=main)))


def test_a_bundle_is_laid_out_read_only_in_place_of_what_was_left_there(tmp_path: Path) -> None:
    (tmp_path / "7/rest").mkdir(parents=True)
    new = written({"a.py": b"1", "models/deep/b.py": b"2"}, tmp_path)
    lay_out(new, tmp_path / "7")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
        *("7/a.py", "7/models/deep/b.py"),
    ]
    assert {path.stat().st_mode & 0o222 for path in [tmp_path / "7", *(tmp_path / "7").rglob("*")]} == {0}
    remove(tmp_path / "7")
    assert list(tmp_path.iterdir()) == []


def test_the_digest_tells_submissions_apart() -> None:
    one = submission(files={"a.py": b"1", "b.py": b"2"})
    turned = Submission(one.main, dict(reversed(one.files.items())))
    assert digest_of(one) == digest_of(turned)
    others = [submission(files={"a.py": b"2", "b.py": b"1"}), submission(files={"a.py": b"1"}), submission(priority=1)]
    assert len({digest_of(sent) for sent in (one, *others)}) == 4
