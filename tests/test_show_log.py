"""`tuner show --log`: what a trial printed."""

import json
from pathlib import Path

import pytest

from tests.commands import run_main
from tests.test_cli import interrupted_run


def test_show_log_prints_what_a_trial_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = interrupted_run(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "00001.log").write_bytes(
        b"".join(b"%d\x1b[2J\n" % number for number in range(30)) + b"\xff end"
    )
    whole = [f"{number}\\x1b[2J" for number in range(30)] + ["\\xff end"]
    for arguments, lines in ((["--log"], whole), (["--log", "--follow"], whole[-21:])):  # the last one has no end
        code, out, err = run_main(capsys, "show", run, "--trial", "1", *arguments)
        assert (code, err, out.splitlines()) == (0, "", lines)
    code, out, err = run_main(capsys, "show", run, "--trial", "1", "--log", "--json")
    assert json.loads(out)["log"].endswith("29\x1b[2J\n\\xff end")
    assert run_main(capsys, "show", run, "--trial", "0", "--log") == (0, "", "trial 00000 printed nothing\n")
    silent = "trial 00000 has printed nothing so far; waiting until it does, or ends\ntrial 00000 printed nothing\n"
    assert run_main(capsys, "show", run, "--trial", "0", "--log", "-f") == (0, "", silent)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--log"], "--log needs the trial whose output is shown, got none; add --trial ID"),
        (["--trial", "1", "-f"], "--follow needs --log, got it alone; add --log, or use --watch to follow the whole search"),
        (["--trial", "1", "--log", "--watch"], "--log shows what one trial printed, got it with --watch; leave one of them out"),
        (["--trial", "1", "--log", "-f", "--json"], "--log shows what one trial printed, got it with --json and --follow; leave one of them out"),
    ],
)  # fmt: skip
def test_show_log_with_options_that_do_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_main(capsys, "show", tmp_path, *arguments) == (2, "", f"tuner: {message}\n")
