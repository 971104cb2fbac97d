"""Config -> the log files, the secrets hidden in them, and the sinks that are on."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from codezero.config import MonitorConfig, NodeConfig
from codezero.monitor.logs import setup_logging
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.secrets import Secrets, known_secrets
from codezero.monitor.sink_wandb import WandbSink
from codezero.monitor.sinks import BackgroundSink, TensorBoardSink, need
from codezero.protocols import Swarm
from codezero.runs import RunFolder


def start_logging(config: NodeConfig) -> None:
    """Raises ConfigError, before anything is made, when a sink that is on is not installed."""
    check_sinks(config.monitor)
    setup_logging(Path(config.run.logs), config.monitor.log_format, secrets_of(config))


def secrets_of(config: NodeConfig) -> Secrets:
    """Everything that the settings know to be secret, and what the environment's names call so."""
    chain, hub = config.chain, config.hub
    return known_secrets(
        variables=[chain.passphrase_variable, chain.alchemy_key_variable, hub.token_variable],
        files=[
            chain.passphrase_file,
            chain.signer_token,
            chain.alchemy_key_file,
            hub.token_file,
            f"{chain.wallet}.passphrase",
        ],
        addresses=[*chain.rpc_urls, chain.alchemy_url],
    )


def check_sinks(config: MonitorConfig) -> None:
    """Raise ConfigError for a sink that is on and whose library is missing."""
    if config.wandb:
        need("wandb", "wandb", f"monitor.wandb={config.wandb}")
    if config.tensorboard:
        need("tensorboardX", "tensorboardx", "monitor.tensorboard=true")


def build_monitor(config: NodeConfig, folder: RunFolder, swarm: Swarm) -> RunMonitor:
    facts = {"solver": config.model.solver, "evaluator": config.evaluator.model, "proposer": config.proposer.model}
    return RunMonitor(
        folder=folder.path,
        view=config.monitor.view,
        identity=swarm.peer_id,
        swarm_kind=config.swarm.kind,
        facts=facts,
        sinks=list(build_sinks(config, folder.path, {"peer": swarm.peer_id, **facts})),
    )


def build_sinks(config: NodeConfig, folder: Path, facts: Mapping[str, str]) -> Iterator[BackgroundSink]:
    """Those that are on; their libraries load in their own threads."""
    project, logs = config.monitor.wandb, Path(config.run.logs)
    if project:
        yield BackgroundSink("Weights & Biases", lambda _: WandbSink(project, facts, folder, logs))
    if config.monitor.tensorboard:
        yield BackgroundSink("TensorBoard", lambda iteration: TensorBoardSink(folder, iteration))
