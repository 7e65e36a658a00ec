import json
from pathlib import Path

import pytest

from tuner.history.data_record import DATA_FILE, MOST_READ, files_left_out
from tuner.storage.folder import LocalFolder


def read(path: Path, content: object) -> tuple[list[tuple[str, str]], int]:
    (path / DATA_FILE).write_text(content if isinstance(content, str) else json.dumps(content))
    return files_left_out(LocalFolder(path))


def test_what_was_left_out_is_read_back(tmp_path: Path) -> None:
    listed = [{"path": f"cat/{index}.jpg", "reason": "it is empty"} for index in range(MOST_READ + 5)]
    found, count = read(tmp_path, {"left_out": listed, "files_left_out": 20_000})
    assert (len(found), count) == (MOST_READ, 20_000)
    assert found[0] == ("cat/0.jpg", "it is empty")


def test_a_run_without_the_file_lists_nothing(tmp_path: Path) -> None:
    assert files_left_out(LocalFolder(tmp_path)) == ([], 0)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", {"left_out": 3}, {"left_out": [3, {"path": 1, "reason": "x"}]}, "[" * 100_000, "\x00"]
)
def test_somebody_elses_damaged_file_costs_only_the_list(tmp_path: Path, content: object) -> None:
    assert read(tmp_path, content) == ([], 0)


def test_names_in_no_encoding_can_be_shown(tmp_path: Path) -> None:
    (found, _) = read(tmp_path, {"left_out": [{"path": "caf\udce9.jpg", "reason": "it is empty"}]})
    found[0][0].encode()
