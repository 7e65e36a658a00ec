"""What is said of a run that can't go on: to who typed a command, and to who called a function."""

from tuner.errors import asked_from_python, setting


def test_a_setting_is_an_option_of_a_command_or_an_argument_of_a_call() -> None:
    assert (setting("--total-epochs"), setting("--disk", 2, "disk_gb")) == ("--total-epochs", "--disk 2")
    with asked_from_python():
        assert (setting("--total-epochs"), setting("--disk", 2, "disk_gb")) == ("total_epochs", "disk_gb=2")
    assert setting("--trials", 3) == "--trials 3"
