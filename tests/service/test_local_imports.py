from pathlib import Path

import pytest

from tests.service.submissions import STUDY
from tuner.errors import StudyError
from tuner.service.checking import check
from tuner.service.local_imports import bundle_of
from tuner.service.model import Limits


def wrote(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "study.py"


def test_what_is_imported_beside_it_is_found_and_nothing_else(tmp_path: Path) -> None:
    study = wrote(
        tmp_path,
        {
            "study.py": "import torch, os, ranges\nfrom models.resnet import block\nfrom data import *\n",
            "ranges.py": "def f():\n    import hidden\n",
            "hidden.py": "raise SystemExit('never executed')",
            "models/__init__.py": "from . import parts\nfrom ..outside import x\n",
            "models/parts.py": "import importlib\nimportlib.import_module('models.late')\n",
            "models/late.py": "",
            "models/resnet.py": "from .deep.er import y\n",
            "models/deep/er.py": "from ..parts import z\n",
            "models/unused.py": "",
            "data.py": "import study\nbroken syntax (",
            "os.py": "shadows nothing",
            "outside.py": "",
        },
    )
    assert sorted(bundle_of(study)) == [
        *("data.py", "hidden.py", "models/__init__.py", "models/deep/er.py", "models/late.py"),
        *("models/parts.py", "models/resnet.py", "ranges.py", "study.py"),
    ]


def test_a_link_out_of_the_folder_is_left_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("PASSWORD = 1")
    study = wrote(tmp_path / "here", {"study.py": "import secret, inner", "real.py": ""})
    (tmp_path / "here/secret.py").symlink_to(secret)
    (tmp_path / "here/inner.py").symlink_to("real.py")
    assert bundle_of(study) == {"study.py": b"import secret, inner", "inner.py": b""}


def test_what_is_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"a study file needs to be Python, got study.py \(invalid syntax"):
        bundle_of(wrote(tmp_path, {"study.py": "study ="}))
    with pytest.raises(StudyError, match=r"got '.*nowhere.py' \(No such file or directory\)"):
        bundle_of(tmp_path / "nowhere.py")


def test_a_bundle_is_loaded_as_the_folder_was(tmp_path: Path) -> None:
    text = STUDY.replace("import tuner", "import tuner\nfrom models.sizes import HIGH").replace("(0, 1)", "(0, HIGH)")
    study = wrote(tmp_path / "home", {"study.py": text, "models/__init__.py": "", "models/sizes.py": "HIGH = 3\n"})
    sent = wrote(tmp_path / "server", {name: content.decode() for name, content in bundle_of(study).items()})
    assert check(sent, {}, Limits()).space == {"x": {"domain": "uniform(0, 3)"}}
