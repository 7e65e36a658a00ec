"""What a real GPU shows that nothing else can: whether everything works there, how fast, and in how much memory.

    python benchmarks/gpu.py --folder DIR [--seconds 560] [--only ROW] [--data .offline]
    python benchmarks/gpu.py --pretend [--folder DIR]     # the whole script without a GPU, in 4 minutes on two cores
    python benchmarks/gpu.py --table --folder DIR         # the results, as a Markdown table
    python benchmarks/gpu.py --pack .offline [--data-dir data]

For a machine that is lent for minutes and reaches no network: rows, the most informative first, each in its own process
with a limit of time. Results are appended to DIR/gpu.jsonl (DIR is $OUT if that is set) as they come, and a row that
has one there isn't measured again, so the same command goes on where the last one ended; `--only ROW`, which may be
repeated and may be the beginning of a name, measures rows again. A row that doesn't fit into --seconds any more is
skipped, and said. Searches that are timed train on 60,000 images that are made there, bytes and sizes as
Fashion-MNIST's; accuracies are of 10,000 that are carried.

Before, on a machine with a network: Ray and the wheels that are missing there (plotly draws a search's report), and
the images, at most 55 MB together:

    ../shared/tools/pack_offline.sh .offline plotly
    python benchmarks/gpu.py --pack .offline
    python benchmarks/gpu.py --pretend

Then send this command, with .offline carried along:

    cp .offline/gpu.jsonl $OUT; . .offline/unpack.sh; PYTHONUNBUFFERED=1 python3 benchmarks/gpu.py --seconds 560

To go on, put the gpu.jsonl that came back into .offline, and send the same command with the seconds that are left.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import sys
import tempfile
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu_record import PRETENDED, Goal, Results, Row, Sizes, chosen, run_rows, table
from benchmarks.gpu_searches import (
    examine,
    look_first,
    pack_search,
    pause_and_resume,
    run_gpu_tests,
    search_plainly,
    search_published,
    search_published_alone,
    search_real_images,
)
from benchmarks.gpu_trials import (
    CONFIGS,
    fail_to_record,
    measure_photos,
    measure_step,
    pack_processes,
    repeat_trials,
    run_out_of_memory,
    stream_photos,
    ways_of,
)
from benchmarks.published import find_data, write_data
from tuner.machine.nvml import read_gpus
from tuner.train.capture import COMPILED, EAGER, GRAPH

FILE = "gpu.jsonl"
PACKED_IMAGES = 10_000
MOST_BYTES = 55e6  # that are carried beside the repository's 8 MB; 64 MiB may be
AT_ONCE = 3  # rows that are pretended: most of their time they wait for Ray

SAME = Goal("losses_apart", 0.02, "the same trial in eager mode")
FREED = Goal("left_mib", 160, "cuBLAS's memory on two streams, 66 MiB each on Hopper, and the images")
RIGHT_WAY = Goal("other_way", 0, "the way that was asked for")
NONE_FAILED = Goal("failed_trials", 0, "none")
STEERED = (
    NONE_FAILED,
    Goal("paused_searches", 1, "the one that was told to", most=False),
    Goal("reused_workers", 1, "trials go on where others were", most=False),
)
PHOTOS = Goal("images_per_second", 16_500, "FFCV 9,760 on an A100, 160 to 192 px", most=False)

NEVER_RAN = (  # or were cut off, in the minutes on an H200 that docs/explanation/measured.md tells of
    Row("pytest -m gpu", 80, run_gpu_tests, (Goal("failed_tests", 0, "none"),)),
    Row("twenty trials", 35, repeat_trials, (Goal("growth", 1.02, "flat"),)),
    Row("compiled: tf32 SGD", 60, ways_of("tf32 SGD", EAGER, COMPILED), (SAME, FREED, RIGHT_WAY)),
    Row("first look", 45, look_first),
    Row(
        "published search",
        150,
        search_published,
        (Goal("seconds", 30, "the floor is about 18 to 21 s"), Goal("times", 20, "the plain script", most=False)),
    ),
    Row("pause and resume, auto", 100, partial(pause_and_resume, "auto"), STEERED),
    Row("photos, 224 px, compiled", 80, partial(measure_photos, (COMPILED,)), (PHOTOS,)),
    Row("JPEGs, 224 px", 75, stream_photos),
    Row("accuracy, 10,000 images", 150, search_real_images, (Goal("accuracy_gained", -0.01, "plain's", most=False),)),
    Row("packing, ten trials", 150, pack_search, (Goal("times", 2.5, "HFTA, MPS papers", most=False), NONE_FAILED)),
    Row("pause and resume, 0.25", 100, partial(pause_and_resume, "0.25"), STEERED),
    *(
        Row(f"compiled: {name}", 60, ways_of(name, EAGER, COMPILED), (SAME, FREED, RIGHT_WAY))
        for name in CONFIGS
        if name != "tf32 SGD"
    ),
)
ROWS = (
    *NEVER_RAN,
    Row("doctor", 45, examine, (Goal("failed_checks", 0, "none"),)),
    Row("step, 28 px", 35, measure_step, (Goal("graph_ms", 0.6, "an H200's kernels alone: 1.49 ms"),)),
    *(Row(f"eager and graph: {name}", 10, ways_of(name, EAGER, GRAPH), (SAME, FREED, RIGHT_WAY)) for name in CONFIGS),
    Row("a capture that fails", 10, fail_to_record, (SAME,)),
    Row("memory that runs out", 15, run_out_of_memory, (SAME, Goal("micro_batch", 511, "the batch of 512"))),
    Row("photos, 224 px", 30, partial(measure_photos, (EAGER, GRAPH)), (PHOTOS,)),
    Row("packing, processes", 90, pack_processes),
    Row("published search, a GPU each", 100, search_published_alone),
    Row("plain script in full", 330, search_plainly),
)


def about(sizes: Sizes) -> dict[str, str]:
    """The card, its driver, and versions of what computes; CUDA isn't asked, as the rows' processes are copies."""
    gpus = () if sizes.pretend else read_gpus()
    card = f"{len(gpus)} x {gpus[0].name}" if gpus else "pretended" if sizes.pretend else "unknown GPU"
    versions = [f"Python {platform.python_version()}", *map(named_version, ("torch", "torchvision", "ray"))]
    return {"card": card, "driver": gpus[0].driver if gpus else "none", "versions": ", ".join(versions)}


def named_version(package: str) -> str:
    """A package and which version of it is installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def pack(source: Path, folder: Path) -> None:
    """Write Fashion-MNIST's first training images and its test images into the folder, compressed."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as whole:
        write_data(source, Path(whole), PACKED_IMAGES)
        for file in (Path(whole) / "FashionMNIST" / "raw").iterdir():
            (raw / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > MOST_BYTES:
        sys.exit(f"at most {MOST_BYTES / 1e6:.0f} MB can be carried, got {size / 1e6:.1f} in {folder}; remove some")
    print(f"{folder} has {size / 1e6:.1f} MB of at most {MOST_BYTES / 1e6:.0f}")


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=os.environ.get("OUT"), help=f"of {FILE} (default: $OUT)")
    parser.add_argument("--seconds", type=float, default=560.0, help="that all rows may take")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="measure these again")
    parser.add_argument("--data", type=Path, default=Path(".offline"), help="what --pack has written")
    parser.add_argument("--pretend", action="store_true", help="on two cores: figures claim nothing")
    parser.add_argument("--table", action="store_true", help="print the results, and measure nothing")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="write the images there, and measure nothing")
    parser.add_argument("--data-dir", type=Path, default=Path(os.environ.get("TUNER_TEST_DATA", "data")))
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only if not chosen(ROWS, [name], ())]
    if unknown:
        parser.error(f"--only needs the beginning of a row's name, got {unknown[0]!r}; use one of {names()}")
    if options.folder is None and not (options.pack or options.pretend):
        parser.error("--folder needs a folder for the results, got none and no $OUT; name one")
    return options


def names() -> str:
    """All rows."""
    return ", ".join(f"'{row.name}'" for row in ROWS)


def measure(options: argparse.Namespace, folder: Path) -> None:
    """Perform the rows that are wanted and have no result."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = replace(PRETENDED if options.pretend else Sizes(), data=options.data)
    results = Results(folder / FILE)
    known = about(sizes)
    print(", ".join(known.values()), flush=True)
    rows = chosen(ROWS, options.only, results.read())
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TUNER_CACHE"] = cache
        run_rows(rows, sizes, results, options.seconds, known, AT_ONCE if options.pretend else 1)


def main(arguments: list[str] | None = None) -> None:
    """Measure, pack, or print the table."""
    options = parsed(arguments)
    if options.pack:
        pack(find_data(options.data_dir), options.pack)
    elif options.table:
        print(table(Results(Path(options.folder) / FILE).read().values()))
    elif options.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            measure(options, Path(folder))
    else:
        measure(options, Path(options.folder))


if __name__ == "__main__":
    main()
