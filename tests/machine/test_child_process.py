"""A program that was started for an answer."""

import subprocess
import sys


def test_it_ends_when_nobody_waits_for_its_answer_and_not_before() -> None:
    program = (
        "import time; from tuner.machine.child_process import end_with_the_input; end_with_the_input(); print('asked', flush=True); "
        "time.sleep(0.2); print('works', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asked:
        assert asked.stdin is not None
        assert asked.stdout is not None
        assert asked.stdout.readline() == "asked\n"
        asked.stdin.write("more of the question\n")
        asked.stdin.flush()
        assert asked.stdout.readline() == "works\n"
        asked.stdin.close()
        assert asked.wait(30) == 1
