import shlex
from pathlib import Path

from tests.results.simulated import simulated
from tuner.cli import main
from tuner.results.findings import findings_of
from tuner.text import command


def test_a_command_is_typed_as_it_is_printed_whatever_the_path() -> None:
    assert command("resume", "runs/a/1") == "python -m tuner resume runs/a/1"
    for path in ("my runs/a;b/1", "it's", "$HOME", "-x", "a\nb"):
        assert shlex.split(command("resume", path))[-1] == path


def test_the_advice_of_a_run_in_a_folder_with_a_space_can_be_typed(tmp_path: Path) -> None:
    run = simulated(tmp_path / "my runs" / "1")
    commands = [shlex.split(advice.command) for advice in findings_of(run).advice if advice.command]
    assert commands
    for words in commands:
        assert words[:3] == ["python", "-m", "tuner"]
        assert words[4] == run.path
    (show,) = (words for words in commands if words[3] == "show")
    assert main(show[3:]) == 0
