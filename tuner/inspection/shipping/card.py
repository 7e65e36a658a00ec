"""README.md of an export, in Markdown: what the model is, how it was found, how good it is, and its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tuner.history.combination import DISTILLED, SOUP
from tuner.history.scored import BEST
from tuner.inspection.best import LoadedModel, declared_trial
from tuner.inspection.shipping.examples import CHECKED, Examples
from tuner.inspection.shipping.forms import SHIPPED
from tuner.results.run import RecordedRun
from tuner.results.wording import settings, shipped, trials_and_repeats
from tuner.train.models.hubs import HubNetwork
from tuner.trial.models import TORCHVISION
from tuner.trial.splitting import REFIT

SHOWN_CLASSES = 200
SOURCES = {"wilson": "Wilson (1927)", "bootstrap": "bootstrap (Efron and Tibshirani 1993)"}
OF_TORCHVISION = (
    "torchvision names no licence for them beside its own (BSD 3-Clause); they were trained on ImageNet, whose images "
    "are for research that is not commercial"
)


def model_card(
    run: RecordedRun, loaded: LoadedModel, form: str, facts: Mapping[str, Any], shown: Examples, *, scripted: bool
) -> str:
    """The card of a winner that was written in a form; `facts` as in model.json."""
    sections = [
        f"# {run.name}: {loaded.card.model}, {len(loaded.classes)} {loaded.answers.outputs}",
        _about(run, loaded),
        "## Use",
        *_use(loaded, form, facts, scripted=scripted),
        "## Checked",
        *_checks(loaded, facts, shown),
        "## How good it is",
        *_metrics(run, loaded),
        "## What it was trained on",
        *_data(run, loaded, shown),
        "## How it was found",
        *_search(run, loaded),
        "## Limits",
        _limits(loaded),
        "## Licence",
        _licence(loaded),
        "## Versions",
        ", ".join(f"{name} {number}" for name, number in (run.info["versions"] or {}).items() if number),
    ]
    head = _metadata(loaded) if form == "hub" else ""
    return head + "\n\n".join(section for section in sections if section) + "\n"


def _metadata(loaded: LoadedModel) -> str:
    """The head by which the hub finds and shows a model."""
    library = "transformers" if isinstance(loaded.module, HubNetwork) else "timm"
    return f"---\nlibrary_name: {library}\npipeline_tag: image-classification\ntags:\n- image-classification\n---\n\n"


def _about(run: RecordedRun, loaded: LoadedModel) -> str:
    trials = list(dict.fromkeys(trial for part in loaded.card.parts for trial in part.trials if trial))
    several = f" It averages the answers of trials {', '.join(trials)} of the search." * (len(trials) > 1)
    found = run.average or {}
    way = found.get("way") if found.get("in") else None
    mixed = ", ".join(one["trial"] for one in found["members"]) if way in (SOUP, DISTILLED) else ""
    mean = {
        SOUP: f" Its weights are the mean of those of trials {mixed} of the search.",
        DISTILLED: f" It learned from labels and from the answers of trials {mixed} of the search.",
    }.get(str(way), "")
    together = (
        f" It is {loaded.card.networks} networks of a cross-validation, whose answers are averaged: each was "
        "trained on all training images but those of its part."
    )
    again = " It was trained on all images but those of the test split, those for validation among them."
    return (
        f"{loaded.answers.kind}: `{loaded.card.model}`, started from {run.info['started_from']}, trained on "
        f"`{loaded.card.data}`; written by tuner on {datetime.now(UTC):%Y-%m-%d}."
        + several
        + mean
        + together * (loaded.card.networks > 1 and not several)
        + again * (loaded.card.trained_on == REFIT)
    )


def _use(loaded: LoadedModel, form: str, facts: Mapping[str, Any], *, scripted: bool) -> Iterator[str]:
    if scripted:
        yield "```sh\npython predict.py photo.jpg\n```"
    yield SHIPPED[form].use.format(**{"opset": None, **facts}, classes=len(facts["labels"]), **_words(loaded))
    if form == "safetensors" and loaded.card.parts:
        yield (
            f"It has {len(loaded.card.parts)} networks, named `networks.0.network.` and so on, some of which may have "
            f"the last layers of several side by side; the mean of their {loaded.answers.output} is the answer, "
            "weighted by `shares` of `parts` in `best/model.json` of the run; before, what each last layer gives is "
            "multiplied by its number of `scales` there."
        )
    elif form == "safetensors" and loaded.card.networks > 1:
        yield (
            f"The names of its {loaded.card.networks} networks start with `networks.0.`, `networks.1.` and so on; the "
            f"mean of their {loaded.answers.output} is the answer."
        )
    if facts["test_time_flip"]:
        inside = "the network has to be asked about both" if form == "safetensors" else "both are asked inside"
        yield f"An answer is the mean of the logits for an image and for its mirror image (left to right): {inside}."
    script = " `predict.py` does so with Pillow, after `pixels.py`, tuner's own reader." * scripted
    yield _framing(facts) + script + " No ONNX operator resizes exactly as training does." * (form == "onnx")
    if loaded.card.is_function:
        yield f"The network is made by the function `{loaded.card.model}` of the run's study.py."
    labels = ", ".join(f"{index} {label}" for index, label in enumerate(facts["labels"][:SHOWN_CLASSES]))
    yield f"Labels: {labels}" + ("; all are in model.json" if len(facts["labels"]) > SHOWN_CLASSES else "")


def _words(loaded: LoadedModel) -> dict[str, str]:
    timm = "; `timm.create_model('local-dir:FOLDER', pretrained=True)` does, too"
    by_timm = "" if isinstance(loaded.module, HubNetwork) else timm
    return {"output": loaded.answers.output, "answering": loaded.answers.answering, "by_timm": by_timm}


def _framing(facts: Mapping[str, Any]) -> str:
    size, how = facts["image_size"], facts["interpolation"]
    if facts["squash"]:
        return (
            f"Before it, both sides of an image are brought to {facts['resize']} pixels ({how}, antialiased), and the "
            f"central {size} × {size} pixels are cut out."  # noqa: RUF001
        )
    if facts["resize"]:
        return (
            f"Before it, an image's shorter side is brought to {facts['resize']} pixels ({how}, antialiased), and the "
            f"central {size} × {size} pixels are cut out."  # noqa: RUF001
        )
    return f"Before it, an image's central square is brought to {size} × {size} pixels ({how}, antialiased)."  # noqa: RUF001


def _checks(loaded: LoadedModel, facts: Mapping[str, Any], shown: Examples) -> Iterator[str]:
    own = 0 if shown.labels is None else min(CHECKED, len(shown.labels))
    what = " and ".join(
        [f"{own} images of the test split"] * bool(own) + [f"{CHECKED - own} random images"] * (own < CHECKED)
    )
    told = f", by {facts['threads']} threads of a program with torch" if "threads" in facts else ""
    yield (
        f"The answers to {what} were compared with those of the trained network; the times are of one image on the CPU "
        f"of the machine that wrote this{told}."
    )
    apart = f"largest difference {loaded.answers.apart_in}"
    rows = [f"| file | size | {apart} | right answers | one image |", "|---|---|---|---|---|"]
    for check in facts["checks"]:
        accuracy = "–" if check["accuracy"] is None else f"{check['accuracy']:.4f} on {check['labelled']} images"  # noqa: RUF001
        rows.append(
            f"| {check['file']} | {check['bytes'] / 1e6:.1f} MB | {check['apart']:.1g} | {accuracy} | "
            f"{check['milliseconds']:.1f} ms |"
        )
    yield "\n".join(rows)
    yield from facts.get("measured", ())


def _metrics(run: RecordedRun, loaded: LoadedModel) -> Iterator[str]:
    if not run.images.get("test") or not any(name.startswith("test_") for name in run.best_metrics):
        yield "It was not scored on a test split."
        return
    yield from loaded.answers.goodness(run)
    yield from _all_metrics(run.best_metrics, run.test_intervals)
    refitted = loaded.card.trained_on == REFIT
    if refitted:
        yield "No image was left to validate it."
    if refitted == (run.refit is not None) and run.best_folder == BEST:  # not so if `best/` is still to be written
        for sentence in shipped(run):
            yield f"{sentence[0].upper()}{sentence[1:]}."


def _all_metrics(metrics: Mapping[str, Any], intervals: Mapping[str, tuple[float, float, str]]) -> Iterator[str]:
    rows = ["| metric | value | 95 % interval | by |", "|---|---|---|---|"]
    for name, value in metrics.items():
        if not name.startswith("test_") or not isinstance(value, int | float):
            continue
        low, high, method = intervals.get(name, (None, None, ""))
        told = "–" if low is None else f"{low:.4f} to {high:.4f}"  # noqa: RUF001
        rows.append(f"| {name} | {value:.4f} | {told} | {SOURCES.get(method, method)} |")
    yield "\n".join(rows)


def _data(run: RecordedRun, loaded: LoadedModel, shown: Examples) -> Iterator[str]:
    sizes = ", ".join(f"{count:,} for {part}" for part, count in run.images.items())
    fingerprint = run.info.get("data_fingerprint")
    yield f"`{loaded.card.data}`: images {sizes or 'not counted'}" + (
        f"; fingerprint {fingerprint}." if fingerprint else "; no fingerprint."
    )
    if shown.missing:
        yield f"The images of each class are not counted: {shown.missing}."
        return
    if not shown.counts["train"]:
        return
    kind = loaded.answers.targets.task.stratum[0]
    rows = [f"| {kind} | " + " | ".join(shown.counts) + " |", "|---" * (1 + len(shown.counts)) + "|"]
    rows += [
        f"| {name} | " + " | ".join(str(shown.counts[part][name]) for part in shown.counts) + " |"
        for name in loaded.classes[:SHOWN_CLASSES]
    ]
    yield "\n".join(rows)


def _search(run: RecordedRun, loaded: LoadedModel) -> Iterator[str]:
    folds = 0 if loaded.card.is_function else declared_trial(loaded.card).folds
    where = f"over {folds} folds" if folds else "on the validation split"
    best, info = run.best, run.info
    trials, chosen = trials_and_repeats(run.record), f"the best {run.metric} {where} chose it"
    if run.best_folder != BEST and run.second is not None:
        chosen = f"it is on the front of {run.metric} and {run.second.metric}"
    how = f"{info['search']} with {info['scheduler']}, seed {info['seed']}"
    yield f"{trials} of the study `{run.name}`, {how}; {chosen}."
    if best is not None:
        yield f"Trial {best.trial}, epoch {run.best_epoch}: {settings(best.config)}"


def _limits(loaded: LoadedModel) -> str:
    of_all = "The figures hold for images like those of the test split: other cameras, light or classes were not tried."
    return "\n".join(f"- {sentence}" for sentence in (of_all, *loaded.answers.limits))


def _licence(loaded: LoadedModel) -> str:
    if loaded.card.is_function:
        return "It started from what its function gave it, whose licence tuner does not know."
    trial = declared_trial(loaded.card)
    published, library = trial.named_weights, trial.model_facts.library
    if published is None:
        random = loaded.card.weights in ("None", "none")
        told = "random weights" if random else f"{loaded.card.weights}, whose licence tuner does not know"
        return f"It started from {told}."
    unnamed = OF_TORCHVISION if library == TORCHVISION else f"{library} names no licence for them"
    where = f" ({published.repository} on the Hugging Face hub, commit {published.commit})" if published.commit else ""
    return f"It started from {library}'s {published.name} of {trial.model_name}{where}: {published.licence or unnamed}."
