"""Images built with buildah and containers run with podman, in a storage of their own that is deleted at the end."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.commands import ROOT

NEEDED = ("buildah", "podman", "runc", "debootstrap")
# runc, and limits that a container of a container may set: crun and podman's own limits fail where cgroups are read-only
RUN = (
    *("--cgroup-manager", "cgroupfs", "--runtime", "runc", "run", "--network", "host", "--no-healthcheck"),
    *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096", "--shm-size", "1g"),
)
# what docker/compose.yaml and docker/kubernetes/ set as well
HARDENED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")


def missing() -> list[str]:
    """What a build needs and this machine lacks."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return lacking + ([] if os.geteuid() == 0 else ["root's rights, for debootstrap"])


class Containers:
    """buildah and podman with one storage below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._storage = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"))

    def buildah(self, *arguments: str | Path) -> None:
        """Run buildah; its output goes to the terminal, as a build takes minutes."""
        command = ["buildah", *self._storage, "--storage-driver", "overlay", *map(str, arguments)]
        subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)

    def podman(self, *arguments: str | Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run podman to its end."""
        command = ["podman", *self._storage, "--storage-driver", "overlay", *map(str, arguments)]
        return subprocess.run(command, check=check, capture_output=True, text=True, timeout=600)

    def build(self, target: str, base: str) -> str:
        """The name of the image of a target of docker/Dockerfile; one that is there already is not built again."""
        name = f"localhost/tuner:{target}"
        if self.has(name):
            return name
        arguments = ["--build-arg", f"BASE={base}"]
        if target == "cpu":  # the index of builds for CPUs need not be reachable here
            arguments += ["--build-arg", f"TORCH_INDEX={os.environ.get('TUNER_TORCH_INDEX', '')}"]
        options = ("--isolation", "chroot", "--format", "docker", "--target", target, "--file", "docker/Dockerfile")
        self.buildah("bud", *options, *arguments, "--tag", f"tuner:{target}", ".")
        return name

    def has(self, image: str) -> bool:
        """Whether an image is there."""
        return self.podman("image", "exists", image, check=False).returncode == 0

    @contextmanager
    def started(self, name: str, *arguments: str | Path) -> Iterator[str]:
        """A hardened container in the background, for the length of the block; `arguments` are options, image, command."""
        self.podman(*RUN, "--detach", "--name", name, *HARDENED, *arguments)
        try:
            yield name
        finally:
            self.podman("rm", "--force", "--time", "5", name)

    def base(self) -> str:
        """A Debian with Python that trusts what this machine trusts, as its registries may be reached by a mirror."""
        if self.has("localhost/tuner-base"):
            return "localhost/tuner-base"
        root = self.folder / "base"
        packages = "python3,python3-venv,ca-certificates"
        mirror = "http://deb.debian.org/debian"
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root), mirror], check=True
        )
        bundle, settings = Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf")
        shutil.copy(bundle, root / "etc/ssl/certs")
        if settings.is_file():
            shutil.copy(settings, root / "etc")
        archive = self.folder / "base.tar"
        subprocess.run(["tar", "--create", "--file", str(archive), "--directory", str(root), "."], check=True)
        shutil.rmtree(root)
        self.podman("import", archive, "tuner-base")
        archive.unlink()
        return "localhost/tuner-base"

    def delete(self) -> None:
        """Delete containers, images and the folder."""
        self.podman("rm", "--all", "--force", check=False)
        self.podman("rmi", "--all", "--force", check=False)
        self.podman("volume", "prune", "--force", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
