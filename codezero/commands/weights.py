"""Commands over published weights: `weights info|verify|apply`, of a folder or an address. Nothing is executed."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import Commands, answer, say, value
from codezero.weights import TOKEN

if TYPE_CHECKING:
    from codezero.weights.versions import VersionSource


def add(commands: Commands) -> None:
    group = commands.group("weights", "look at published versions of a model, check them, bring a model up to date")
    source = {"source": value(str, "SOURCE", f"a folder of versions, or its address; {TOKEN} holds a token")}
    model = {"model": value(Path, "DIR", "a model as save_pretrained writes it; it becomes the newest version")}
    group.add("info", info, "list the versions: how large, and from where they can be reached", source, settings="")
    group.add("verify", verify, "follow every delta from the oldest anchor, compare each content", source, settings="")
    group.add("apply", apply, "bring a model directory to the newest version", source | model, settings="")


def info(options: argparse.Namespace) -> int:
    from codezero.weights.versions import read_manifest

    manifest = read_manifest(_source(options))
    rows = [f"{'version':>9}  {'delta':>14}  {'whole':>16}  state"]
    for version in manifest.versions:
        rows.append(f"{version.number:>9}  {version.delta:>14,}  {version.anchor:>16,}  {version.state[:16]}")
    return answer(options, manifest, "\n".join(rows))


def verify(options: argparse.Namespace) -> int:
    """Raises WeightsError where a version is not what was published."""
    from codezero.weights.versions import catch_up

    say("fetching and checking every version")
    weights, version = catch_up(_source(options), oldest=True)
    content, size = weights.content(), weights.layout.size
    result: dict[str, object] = {"version": version.number, "content": content, "weights": size}
    return answer(options, result, "version {version} is whole: {weights:,} weights, {content}".format(**result))


def apply(options: argparse.Namespace) -> int:
    """Other files stay; the weights are bfloat16 afterwards. Raises WeightsError: the model is as it was."""
    from codezero.errors import WeightsError, translated
    from codezero.weights.state import read_weights, write_anchor
    from codezero.weights.versions import catch_up

    layout = read_weights(options.model).layout
    say("fetching the newest version")
    weights, version = catch_up(_source(options), layout=layout)
    with translated(WeightsError, f"{options.model} cannot be written", OSError):
        write_anchor(weights, options.model / "model.safetensors")
        for path in {*options.model.glob("model-*.safetensors"), *options.model.glob("*.safetensors.index.json")}:
            path.unlink()
    result: dict[str, object] = {"version": version.number, "model": os.fspath(options.model)}
    return answer(options, result, "{model} is version {version}".format(**result))


def _source(options: argparse.Namespace) -> "VersionSource":
    from codezero.weights.transfer import open_source

    return open_source(options.source, os.environ.get(TOKEN, ""))
