"""`tuner serve`: take studies from a team, queue them, run them, and show them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.outcome import SUCCESS
from tuner.cli.parsing import natural, port
from tuner.errors import StudyError
from tuner.machine.installation import check_serves

if TYPE_CHECKING:
    from tuner.service.executors import Executor
    from tuner.service.web.server import Opened


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb."""
    parser.add_argument("--storage", default="runs", metavar="DIR", help="the folder of all runs (default: runs)")
    parser.add_argument(
        "--backup", metavar="FILE", help="copy the service's database to a new file and end; works while a server runs"
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        dest="limits",
        metavar="NAME=VALUE",
        help="change a limit, such as queued_per_user=50; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, when the server listens")
    group = parser.add_argument_group("address")
    group.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen at (default: 127.0.0.1)"
    )
    group.add_argument(
        "--port", type=port, default=8765, metavar="N", help="port to listen at (default: 8765; 0: any free port)"
    )
    group.add_argument("--tls-cert", metavar="FILE", help="TLS certificate; needed for any address except loopback")
    group.add_argument("--tls-key", metavar="FILE", help="key of the certificate")
    group.add_argument(
        "--behind-proxy", action="store_true", help="a proxy provides TLS, and only the proxy can reach the server"
    )
    group.add_argument(
        "--trust-proxy",
        action="append",
        default=[],
        metavar="NETWORK",
        help="address or network of the proxy, which says where requests come from (default: this machine); may be "
        "repeated",
    )
    group.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="a host name that browsers use for the server; may be repeated",
    )
    group = parser.add_argument_group("webhooks")
    group.add_argument(
        "--webhook-allow",
        action="append",
        default=[],
        metavar="NETWORK",
        help="a private address or network, such as 10.1.0.0/16, that webhooks may reach; may be repeated",
    )
    group.add_argument("--webhook-ca", metavar="FILE", help="further certificates to trust for webhooks, in PEM")
    group = parser.add_argument_group("what drivers get")
    group.add_argument("--cpus", type=natural, metavar="N", help="CPUs for all studies together (default: all)")
    group.add_argument("--gpus", type=natural, metavar="N", help="GPUs for all studies together (default: all)")
    group.add_argument(
        "--ray-jobs",
        metavar="URL",
        help="run drivers as jobs of the Ray cluster with this dashboard; --cpus and --gpus say how much of it; its "
        "machines need the storage folder under the same path",
    )
    group.add_argument(
        "--pass",
        action="append",
        default=[],
        dest="passed",
        metavar="NAME",
        help="give drivers this environment variable that looks like a secret, e.g. WANDB_API_KEY; may be repeated",
    )


def perform(options: argparse.Namespace) -> int:
    """Run the verb; returns its exit code."""
    if options.backup is not None:
        return _back_up(options, Path(options.backup))
    check_serves()
    from tuner.service.devices import devices_here, devices_of_cluster
    from tuner.service.model import limits_of
    from tuner.service.service import Service
    from tuner.service.web.server import serve
    from tuner.service.web.settings import WebSettings
    from tuner.service.webhooks import Reach

    settings = WebSettings(
        host=options.host,
        port=options.port,
        tls_cert=options.tls_cert and Path(options.tls_cert),
        tls_key=options.tls_key and Path(options.tls_key),
        behind_proxy=options.behind_proxy or bool(options.trust_proxy),
        **({"proxies": tuple(options.trust_proxy)} if options.trust_proxy else {}),
        names=tuple(options.name),
        reach=Reach.of(tuple(options.webhook_allow), options.webhook_ca and Path(options.webhook_ca)),
    )
    settings.check()
    passed, limits = _passed(options.passed), limits_of(options.limits)
    executor = None if options.ray_jobs is None else _ray_jobs(options)
    if executor is None:
        devices = devices_here(options.cpus, options.gpus)
    else:
        devices = devices_of_cluster(options.cpus or 0, options.gpus or 0)
    if not devices:
        raise StudyError("a server needs a device for its studies, got --cpus 0 and no GPU; leave --cpus out")
    with Service(options.storage, limits=limits, devices=devices, executor=executor, passed=passed) as service:
        serve(service, settings, say=lambda opened: _say(options, opened))
    return SUCCESS


def _say(options: argparse.Namespace, opened: Opened) -> None:
    if options.json:
        print(json.dumps(asdict(opened)), flush=True)
    else:
        print(opened, file=sys.stderr, flush=True)


def _ray_jobs(options: argparse.Namespace) -> Executor:
    """The executor for drivers on a cluster."""
    from tuner.service.executors import RayJobs
    from tuner.service.executors.jobs_api import JobsApi, token_here

    if not options.cpus and not options.gpus:
        raise StudyError(
            "--ray-jobs needs to know how much of the cluster studies get, got neither --cpus nor --gpus; "
            "give their numbers"
        )
    if options.passed:
        raise StudyError(
            "--pass doesn't go with --ray-jobs, as the cluster's dashboard shows what jobs are given, got "
            f"--pass {options.passed[0]}; set it on the cluster's machines"
        )
    return RayJobs(JobsApi(options.ray_jobs, token_here()))


def _back_up(options: argparse.Namespace, file: Path) -> int:
    from tuner.service.data_folder import DataFolder
    from tuner.service.database import Database

    folder = DataFolder(options.storage)
    if not folder.database.is_file():
        raise StudyError(
            f"--backup needs a storage folder that was served, got {options.storage!r}, which has no database; "
            "check --storage"
        )
    database = Database(folder.database)
    try:
        database.backup(file)
    finally:
        database.close()
    if options.json:
        print(json.dumps({"backup": str(file)}))
    return SUCCESS


def _passed(names: list[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise StudyError(f"--pass needs variables that are set, got {', '.join(missing)}; set them, or leave them out")
    return {name: os.environ[name] for name in names}
