"""Config -> what records a run, and what is kept about it: monitor and sinks, settings, the secrets of the log."""

import json
from collections.abc import Sequence
from pathlib import Path

from codezero.config import HUB_TOKEN, LOGIN_TOKEN, NodeConfig
from codezero.models.hardware import Usage
from codezero.monitor.logs import Secrets, known_secrets
from codezero.monitor.monitor import RunMonitor, WandbRun
from codezero.monitor.run_types import SettingLine, write_settings
from codezero.monitor.terminal import Screen
from codezero.settings import trace


def secrets_of(config: NodeConfig) -> Secrets:
    """Everything that the settings know to be secret, and what the environment's names call so."""
    chain, hub = config.chain, config.hub
    passphrase = f"{chain.wallet}.passphrase"
    return known_secrets(
        variables=[chain.passphrase_variable, HUB_TOKEN],
        files=[chain.passphrase_file, f"{config.login.directory}/{LOGIN_TOKEN}", hub.token_file, passphrase],
        addresses=[url for url in chain.rpc_urls if "://" in url],
    )


def record_settings(folder: Path, composed: NodeConfig, config: NodeConfig, overrides: Sequence[str]) -> None:
    """Write every setting that the run has, with where it comes from, for people to look up."""
    known, secrets = trace(overrides, composed), secrets_of(config)
    chosen = trace(overrides, config).values if config is not composed else known.values
    lines: list[SettingLine] = []
    for key, value in chosen.items():
        origin = known.origins[key] if value == known.values[key] else "chosen for this machine"
        lines.append(SettingLine(key, secrets.hide(json.dumps(value)), origin))
    write_settings(folder, lines)


def build_monitor(config: NodeConfig, folder: Path, peer_id: str, start: Screen | None = None) -> RunMonitor:
    """start: what is seen until the node trains, and closed then; None: lines."""
    facts, project = models_of(config), config.monitor.wandb
    return RunMonitor(
        folder=folder,
        view=config.monitor.view,
        identity=peer_id,
        facts={"swarm": config.swarm.kind, **facts},
        wandb=WandbRun(project, {"peer": peer_id, **facts}, folder, Path(config.run.logs)) if project else None,
        usage=Usage(),
        start=start,
    )


def models_of(config: NodeConfig) -> dict[str, str]:
    """The facts of a run that name its models."""
    return {"solver": config.model.solver, "evaluator": config.evaluator.model, "proposer": config.proposer.model}
