"""Nodes of a joined cluster: those that can't run a study's trials are named before the first one, code comes to all."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tests.commands import ROOT, study_file, tuner
from tests.mounts import APART, needs_mounts
from tests.nodes import NEEDS_PLAIN_PATH, further_node
from tests.searches import CURVE, study
from tests.test_several_devices import ON_LOOPBACK, two_nodes  # noqa: F401 -- a fixture
from tuner import Resources, StudyError, __version__, load_run
from tuner.driver import nodes
from tuner.driver.cluster import holds_a_trial
from tuner.driver.nodes import Seen

HERE = {"Python": "3.11.7", "tuner": "0.1.0", "torch": "2.15.0+cu132", "torchvision": "0.30.0"}


def node(address: str, **versions: str) -> Seen:
    return Seen(address, HERE | versions)


def test_nodes_with_other_versions_are_named_all_of_them() -> None:
    seen = [node("10.0.0.2", torch="2.14.1"), node("10.0.0.3", torch="2.15.0+cpu"), node("10.0.0.4", torch="none")]
    with pytest.raises(
        StudyError,
        match=r"all nodes need the same torch, got 2\.14\.1 on 10\.0\.0\.2, none on 10\.0\.0\.4 and 2\.15\.0\+cu132 here; install",
    ):
        nodes._check_versions(HERE, seen)
    nodes._check_versions({"tuner": "0.1.0"}, seen)  # all that a function is known to need
    assert list(nodes._of_versions(HERE, [node("10.0.0.2", Python="3.11.8")])) == [
        "Python is 3.11.8 on 10.0.0.2 and 3.11.7 here, so trials there may give other results"
    ]


def test_of_a_silent_node_a_python_whose_path_has_a_space_is_told() -> None:
    (plain,) = nodes._of_silent(["10.0.0.2"], "/env/bin/python")
    assert plain == "whether trials can run on 10.0.0.2 is unknown, as no answer came within 60 s"
    (spaced,) = nodes._of_silent(["10.0.0.2"], "/my env/bin/python")
    assert spaced.startswith(f"{plain}: Ray starts no workers by a Python whose path has a space, as here (/my env/bin")
    assert list(nodes._of_silent([], "/my env/bin/python")) == []


def test_nodes_with_other_data_or_weights_under_the_same_path_are_named() -> None:
    there = {"10.0.0.2": "aa", "10.0.0.3": "bb"}
    for what, parts in (("data", "files"), ("weights", "contents")):
        said = rf"the same {what}, got other {parts} under the same path on 10\.0\.0\.3; copy them again"
        with pytest.raises(StudyError, match=said):
            nodes._check_same(what, parts, "aa", there)
    nodes._check_same("data", "files", None, {"10.0.0.2": None})


def test_only_nodes_that_can_hold_a_trial_are_looked_at() -> None:
    def holds(resources: Resources, **has: float) -> bool:
        return holds_a_trial(resources, {"Resources": has})

    wanted = Resources(cpus=2, gpus=1, accelerator="H100")
    assert holds(wanted, CPU=8, GPU=4, **{"accelerator_type:H100": 1})
    assert not holds(wanted, CPU=8, GPU=4, **{"accelerator_type:A100": 1})
    assert not holds(replace(wanted, accelerator=None), CPU=8)
    assert not holds(wanted, CPU=0, GPU=0)


PHOTOS = """
study = Study(
    "photos", trial=ImageClassifier(data="folder:photos", model="resnet18", weights=None),
    space={"lr": loguniform(1e-4, 1e-1)}, metric="val_accuracy", budget=Budget(trials=1, max_epochs=1),
)
"""
MODULES = """
from ours import losses

def train(config):
    import ray
    import later

    time.sleep(1)  # so that all nodes have a trial
    tuner.report(loss=losses.loss(config["x"]), node=ray.util.get_node_ip_address(), here=later.__file__)
"""
HIDDEN = (*APART, 'for each in "$1" "$2"; do mount -t tmpfs none "$each"; done; shift 2; exec "$@"', "sh")


@pytest.mark.ray
@pytest.mark.slow
def test_a_node_with_another_tuner_is_named(two_nodes: str, tmp_path: Path) -> None:  # noqa: F811
    other = tmp_path / "other"
    shutil.copytree(ROOT / "tuner", other / "tuner", ignore=shutil.ignore_patterns("__pycache__"))
    (other / "tuner" / "version.py").write_text('__version__ = "9.9.0"\n')
    space = study_file(tmp_path, study(CURVE))
    with further_node(two_nodes, address="127.0.0.3", PYTHONPATH=str(other)):
        refused = tuner("run", space, "--address", two_nodes, folder=tmp_path, **ON_LOOPBACK)
    assert refused.code == 2
    assert refused.err.splitlines()[-1] == (
        f"tuner: all nodes need the same tuner, got 9.9.0 on 127.0.0.3 and {__version__} here; "
        "install one version everywhere, or use one image"
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.ray
@pytest.mark.slow
@needs_mounts
@NEEDS_PLAIN_PATH
def test_a_node_without_the_data_or_the_runs_is_named_and_modules_travel(
    two_nodes: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    mine, elsewhere, out = (tmp_path / name for name in ("my study", "elsewhere", "out"))
    for kind in ("cat", "dog"):
        (mine / "photos" / kind).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (32, 32), (number, 0, 0)).save(mine / "photos" / kind / f"{number}.jpg")
    (mine / "ours").mkdir()
    (mine / "ours" / "__init__.py").touch()
    (mine / "ours" / "losses.py").write_text("import factor\n\ndef loss(x):\n    return factor.FACTOR * x\n")
    (mine / "factor.py").write_text("FACTOR = 3\n")
    (mine / "later.py").write_text("")
    elsewhere.mkdir()
    out.mkdir()
    private = tmp_path / "private"
    private.mkdir()
    photos = study_file(mine, PHOTOS, "photos.py")
    space = study_file(mine, study(MODULES, "search=Random(), scheduler=NoEarlyStopping()", trials=6))
    on_cluster = ("--address", two_nodes, "--storage")
    with further_node(two_nodes, *HIDDEN, mine, private, folder=elsewhere, PYTHONPATH=str(ROOT)):
        unseen = tuner("run", photos, *on_cluster, out, folder=mine, **ON_LOOPBACK)
        assert unseen.code == 2
        told = unseen.err.splitlines()[-1]
        assert told.startswith("tuner: every node needs the study's code, data and weights, got none on 127.0.0.3 (")
        assert told.endswith("); put them there under the same path, or into a folder that all nodes see")
        assert str(mine / "photos") in told
        apart = tuner("run", space, *on_cluster, private, folder=mine, **ON_LOOPBACK)
        assert apart.code == 2
        assert f"the folder of the runs, {str(private)!r}, got none on 127.0.0.3 (" in apart.err.splitlines()[-1]
        assert list(out.iterdir()) == list(private.iterdir()) == []
        finished = tuner("run", space, *on_cluster, out, folder=mine, **ON_LOOPBACK)
    assert finished.code == 0, finished.err
    trials = load_run(out).record.trials.values()
    told_by = {trial.epochs[1].metrics["node"]: trial.epochs[1].metrics["here"] for trial in trials}
    assert set(told_by) == {"127.0.0.1", "127.0.0.3"}
    assert told_by["127.0.0.1"] == str(mine / "later.py")  # the original where it is, with what lies beside it
    assert str(mine) not in told_by["127.0.0.3"]
    assert all(trial.epochs[1].metrics["loss"] == 3 * trial.config["x"] for trial in trials)
