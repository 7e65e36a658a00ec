"""How a service shares devices: a simulated week by the real scheduler, and a second user's wait at a real server."""

from __future__ import annotations

import argparse
import heapq
import random
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from service_drivers import service_of

from tuner.service.database import usage
from tuner.service.devices import devices_here
from tuner.service.model import Demand, Device, Role, State, Submission, SubmittedStudy
from tuner.service.scheduling import Plan, Share, plan
from tuner.service.service import Service

WEEK = 7 * 24 * 3600.0
WEIGHTS = (1, 1, 1, 1, 1, 1, 2, 2, 3, 3)
DEVICES = tuple(Device("gpu", index) for index in range(16))
TRIAL_SECONDS, TRIALS = (600.0, 3600.0), (10, 80)  # of a trial, and in a study: between these
STUDY = """\
import time, tuner

def train(config):
    for epoch in range(3):
        time.sleep({epoch_seconds})
        tuner.report(loss=config["x"])

study = tuner.Study("long", trial=train, space={{"x": tuner.uniform(0, 1)}}, metric="loss", mode="min",
    search=tuner.Random(), scheduler=tuner.NoEarlyStopping(), warm_start=None,
    budget=tuner.Budget(trials={trials}, max_epochs=3))
"""


class Week:
    """Ten users, each with two studies at any time; what runs and waits is decided by `plan`, at a simulated clock."""

    def __init__(self, seed: int) -> None:
        self.now, self.random = 0.0, random.Random(seed)
        self.studies: dict[int, SubmittedStudy] = {}
        self.left: dict[int, int] = {}  # trials that have not begun, by study
        self.keep: dict[int, int] = {}
        self.ends: list[tuple[float, int, Device]] = []  # of trials
        self.idle: dict[int, list[Device]] = {}
        self.hours: Counter[int] = Counter()
        self.decayed: Counter[int] = Counter()
        self.trained = 0.0

    def play(self) -> tuple[float, float]:
        """The largest relative distance of a user's device-hours from their weight's share, and the utilisation."""
        for user in range(len(WEIGHTS)):
            for _ in range(2):
                self.submit(user)
        self.decide()
        while self.now < WEEK:
            end, study, device = heapq.heappop(self.ends)
            self.pass_to(min(end, WEEK))
            self.idle[study].append(device)
            self.give_back(study)
            self.decide()
        whole, weights = sum(self.hours.values()), sum(WEIGHTS)
        distances = [abs(self.hours[user] / whole / (weight / weights) - 1) for user, weight in enumerate(WEIGHTS)]
        return max(distances), self.trained / (WEEK * len(DEVICES))

    def submit(self, user: int) -> None:
        number, trials = len(self.studies) + 1, self.random.randint(*TRIALS)
        demand = Demand("gpu", min(trials, len(DEVICES)), 1)
        self.studies[number] = SubmittedStudy(
            number, "s", f"u{user}", State.QUEUED, 0, False, demand, (), self.now, self.now, user_id=user
        )
        self.left[number], self.idle[number] = trials, []

    def pass_to(self, now: float) -> None:
        seconds, self.now = now - self.now, now
        fade = 0.5 ** (seconds / usage.HALF_LIFE_SECONDS)
        for user in range(len(WEIGHTS)):
            self.decayed[user] *= fade
        for study in self.studies.values():
            held = len(study.devices) * seconds / 3600
            self.hours[study.user_id] += held
            self.decayed[study.user_id] += held
            self.trained += (len(study.devices) - len(self.idle[study.id])) * seconds

    def give_back(self, number: int) -> None:
        study, idle = self.studies[number], self.idle[number]
        while idle and len(study.devices) > self.keep.get(number, len(study.devices)):
            device = idle.pop()
            study = replace(study, devices=tuple(one for one in study.devices if one != device))
        self.studies[number] = study
        while idle and self.left[number]:
            self.left[number] -= 1
            heapq.heappush(self.ends, (self.now + self.random.uniform(*TRIAL_SECONDS), number, idle.pop()))
        if len(idle) == len(study.devices):  # no trial runs
            self.studies[number] = replace(study, devices=(), state=State.FINISHED)
            idle.clear()
            self.submit(study.user_id)

    def decide(self) -> None:
        """As the supervisor does, until nothing is to be done before a trial ends."""
        while True:
            shares = {user: Share(self.decayed[user], weight) for user, weight in enumerate(WEIGHTS)}
            found = plan([self.with_left(one) for one in self.alive()], DEVICES, shares, self.now)
            self.keep = {resize.study: resize.keep for resize in found.resizes}
            before = [one.devices for one in self.alive()]
            self.carry_out(found)
            for study in [one.id for one in self.alive() if one.devices]:
                self.give_back(study)
            if before == [one.devices for one in self.alive()]:
                return

    def alive(self) -> list[SubmittedStudy]:
        return [study for study in self.studies.values() if study.state is not State.FINISHED]

    def with_left(self, study: SubmittedStudy) -> SubmittedStudy:
        runs = len(study.devices) - len(self.idle[study.id])
        count = max(1, min(study.demand.count, self.left[study.id] + runs))
        return replace(study, demand=replace(study.demand, count=count))

    def carry_out(self, found: Plan) -> None:
        got = {start.study: start.devices for start in found.starts}
        got |= {resize.study: resize.more for resize in found.resizes if resize.more}
        for number, devices in got.items():
            study = self.studies[number]
            self.studies[number] = replace(study, state=State.RUNNING, devices=(*study.devices, *devices), started=0.0)
            self.idle[number] += devices


def second_user(epoch_seconds: float) -> float:
    """Seconds from a second user's submission until their first trial runs, while a study has all CPUs."""
    with tempfile.TemporaryDirectory() as folder:
        looking, chief, _ = service_of(folder)
        looking.close()
        with Service(Path(folder), devices=devices_here(cpus=2, gpus=0)) as service:
            other = replace(chief, id=chief.id + 1, name="other", role=Role.SUBMITTER)
            files = {"x.py": STUDY.format(epoch_seconds=epoch_seconds, trials=40).encode()}
            first = service.submit(Submission("x.py", files, options={"wandb": "off"}), chief).id
            while not ((followed := service.followed(first)) and len(followed.running) == 2):
                time.sleep(0.1)
            time.sleep(1.5 * epoch_seconds)
            begun = time.monotonic()
            second = service.submit(Submission("x.py", files, options={"wandb": "off"}), other).id
            while not ((followed := service.followed(second)) and followed.running):
                time.sleep(0.1)
            seconds = time.monotonic() - begun
            for study in (first, second):
                service.cancel(study, chief)
            while any(service.study(study).devices for study in (first, second)):
                time.sleep(0.1)
            return seconds


def of_shares(_: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Rows on how devices are shared."""
    far, used = zip(*(Week(seed).play() for seed in range(3)), strict=True)
    return [
        ("a simulated week of ten users: device-hours from weights, at most", f"{max(far):.1%}", "10 %"),
        ("the same: devices in use, at least", f"{min(used):.1%}", "95 %"),
        ("a second user's first trial, 10 s epochs, 3 a trial", f"{second_user(10.0):.0f} s", "30 s"),
    ]
