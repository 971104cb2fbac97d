"""Config -> what is learned: code, or a taskset of the user's own."""

from codezero.config import CODE, ENVIRONMENTS, NodeConfig
from codezero.config.learning import named
from codezero.environment import Environment
from codezero.environments.code import CodeEnvironment
from codezero.environments.tasks import TaskEnvironment
from codezero.errors import ConfigError
from codezero.system.plugins import blamed, load_object

NEEDS = ("name", "version", "task", "score")


def build_environment(config: NodeConfig) -> Environment:
    """Raises ConfigError, also for what other settings ask of it that only code has."""
    if config.environment == CODE:
        return CodeEnvironment()
    for key, is_asked in (
        ("market.enabled=true", config.market.enabled),
        (f"reward.mode={config.reward.mode}", config.reward.mode != "judge"),
        (f"reward.function={config.reward.function}", bool(config.reward.function)),
        (f"evaluator.kind={config.evaluator.kind}", config.evaluator.kind != "local"),
        (f"data.sources={config.data.sources}", config.data.sources != ["synthetic"]),
    ):
        if is_asked:
            raise ConfigError(f"{key} is of environment=code alone; drop it or environment={config.environment}")
    with blamed(ConfigError, f"environment={named(config.environment)}"):  # it reads what may be properties
        return TaskEnvironment(load_object(config.environment, "environment", NEEDS, ENVIRONMENTS))
