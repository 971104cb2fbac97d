"""Config -> what records a run, and what is kept about it: monitor and sinks, settings, the secrets of the log."""

import json
from collections.abc import Sequence
from pathlib import Path

from codezero.config import NodeConfig
from codezero.inspection.run_details import SettingLine, write_settings
from codezero.models.usage import Usage
from codezero.monitor.logs import Secrets, known_secrets
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.sinks import BackgroundSink, wandb_sink
from codezero.monitor.summaries import PlainView
from codezero.protocols import Swarm
from codezero.runs import RunFolder
from codezero.settings import trace


def secrets_of(config: NodeConfig) -> Secrets:
    """Everything that the settings know to be secret, and what the environment's names call so."""
    chain, hub = config.chain, config.hub
    passphrase = f"{chain.wallet}.passphrase"
    return known_secrets(
        variables=[chain.passphrase_variable, hub.token_variable],
        files=[chain.passphrase_file, chain.signer_token, hub.token_file, passphrase],
        addresses=[url for url in chain.rpc_urls if "://" in url],
    )


def record_settings(folder: Path, composed: NodeConfig, config: NodeConfig, overrides: Sequence[str]) -> None:
    """Write every setting that the run has, with where it comes from, for people to look up."""
    known, secrets = trace(overrides, composed), secrets_of(config)
    chosen = trace(overrides, config).values if config is not composed else known.values
    lines = [
        SettingLine(
            key,
            secrets.hide(json.dumps(value)),
            known.origins[key] if value == known.values[key] else "chosen for this machine",
        )
        for key, value in chosen.items()
    ]
    write_settings(folder, lines)


def build_monitor(config: NodeConfig, folder: RunFolder, swarm: Swarm, start: PlainView | None = None) -> RunMonitor:
    facts = {"solver": config.model.solver, "evaluator": config.evaluator.model, "proposer": config.proposer.model}
    settings, path, peer, kind = config.monitor, folder.path, swarm.peer_id, config.swarm.kind
    sinks: list[BackgroundSink] = []  # their libraries load in their own threads
    if settings.wandb:
        about, logs = {"peer": peer, **facts}, Path(config.run.logs)
        sinks.append(BackgroundSink("Weights & Biases", lambda _: wandb_sink(settings.wandb, about, path, logs)))
    return RunMonitor(
        folder=path,
        view=settings.view,
        identity=peer,
        swarm_kind=kind,
        facts=facts,
        sinks=sinks,
        usage=Usage(),
        start=start,
    )
