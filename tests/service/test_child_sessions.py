import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import is_alive
from tuner.service.child_sessions import clean_environment, end_session

SECRETS = (
    "postgres://user:password@db/x",
    "redis://:word@cache:6379/0",
    "amqps://a:b%40c@queue",
    "https://0123abcd@sentry.example.org/4",
    "http://user:word@proxy:3128",
    "Server=db;User Id=x;Password=word;",
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=YWJj==",
    "-----BEGIN RSA PRIVATE KEY-----\nabc",
    "Bearer abc",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghij0123456789abcdef",
    "hf_abcdefghijklmnopqrstuvwxyzabcdefgh",
    '{"user": "x", "password": "word"}',
    "https://host/blob?sv=1&signature=abc",
)
ORDINARY = (
    "/usr/bin:/bin",
    "https://host.example.org:8080/a@b",
    "ssh://git@host.example.org/x",
    "unix:path=/run/user/0/bus",
    "localhost,127.0.0.1,::1",
    "rs=0:di=01;34:ln=01;36",
    "a@example.org",
    "expandable_segments:True",
    "/home/x/passwords/keys",
    "",
)


def test_drivers_get_no_variable_whose_value_has_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, value in enumerate((*SECRETS, *ORDINARY)):
        monkeypatch.setenv(f"SETTING_{number}", value)
    monkeypatch.setenv("MY_TOKEN", "x")
    found = clean_environment({"SETTING_0": SECRETS[0]})
    kept = [value for name, value in found.items() if name.startswith("SETTING_")]
    assert sorted(kept) == sorted([SECRETS[0], *ORDINARY])
    assert "MY_TOKEN" not in found


# A process with much memory takes a while to go; it is in a session of its own, and its parent has ended
LARGE = "import time; x = bytearray(b'1') * 500_000_000; print('ready', flush=True); time.sleep(600)"
LEADER = f"""\
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
started = subprocess.Popen([sys.executable, "-c", {LARGE!r}], stdout=subprocess.PIPE, start_new_session=True)
started.stdout.readline()
print(started.pid, flush=True)
time.sleep(600)
"""


def test_a_process_that_takes_a_while_to_go_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADER], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        large = int(leader.stdout.readline())
        assert end_session(leader.pid)
        assert not is_alive(large)


def test_it_is_waited_for_also_where_the_leader_has_ended_before() -> None:
    code = f"""\
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {LEADER!r}])
os._exit(0)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        large = int(leader.stdout.readline())
        assert end_session(leader.pid)
        assert not is_alive(large)


@pytest.mark.parametrize("_", range(8))  # what begins between a look and a kill is luck
def test_what_starts_processes_all_the_time_is_ended_too(_: int) -> None:
    code = """\
import subprocess
print("ready", flush=True)
while True:
    subprocess.Popen(["sleep", "300.125"], start_new_session=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        leader.stdout.readline()
        assert end_session(leader.pid)
        sleeping = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"300.125" in read(path)]
        assert sleeping == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
