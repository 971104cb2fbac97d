"""Config -> the sandbox, as the settings of rewards and audits bound it."""

import os
from contextlib import ExitStack

from codezero.config import NodeConfig
from codezero.sandbox.base import Sandbox


def build_sandbox(config: NodeConfig, stack: ExitStack) -> Sandbox:
    """Raises SandboxError and ConfigError."""
    from codezero.sandbox.bubblewrap import open_sandbox

    which, reward = config.audit.sandbox, config.reward
    workers = reward.workers or min(16, (os.cpu_count() or 1) - 1)  # one core is for what goes on beside
    limits = {"seconds": reward.test_seconds, "total_seconds": reward.program_seconds}
    packages = config.audit.packages
    return stack.enter_context(open_sandbox(which, **limits, workers=max(1, workers), packages=packages))
