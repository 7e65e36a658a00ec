"""What an installation refuses: a search on Windows itself, and one without the libraries that it needs."""

from pathlib import Path

import pytest

from tuner.errors import StudyError
from tuner.machine.installation import LIBRARIES, check_serves, check_trains


def test_a_whole_install_trains() -> None:
    check_trains("a search")


def test_windows_itself_is_refused_with_the_way_to_linux() -> None:
    with pytest.raises(StudyError) as caught:
        check_trains("a search", system="Windows")
    assert str(caught.value) == (
        "a search needs Linux or macOS, got Windows; install tuner in WSL2, Windows' own Linux (wsl --install)"
    )


def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raay").mkdir()  # a folder of that name can be imported, and is no library
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(StudyError, match=r"got an installation without raay; pip install 'image-tuner\[train\]'"):
        check_trains("a search", libraries=("raay", *LIBRARIES))


def test_a_service_needs_linux_and_its_extra() -> None:
    check_serves()
    with pytest.raises(StudyError, match=r"a service needs Linux, by whose /proc it knows its drivers, got Darwin"):
        check_serves(system="Darwin")
    with pytest.raises(
        StudyError, match=r"got an installation without raay; pip install 'image-tuner\[service,train\]'"
    ):
        check_serves(libraries=("raay",))
