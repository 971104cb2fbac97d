"""Single-turn tasksets of the library `verifiers` (its `verifiers.v1`) as an environment. Needs the extra `verifiers`.

Not here: tools, several turns, containers, and judges behind endpoints; tasks that need such are refused."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false

import asyncio
from itertools import islice
from typing import Any

from verifiers import __version__
from verifiers import v1 as vf
from verifiers.v1.utils.loaders import taskset_class, taskset_config_type

from codezero.environments.tasks import Task
from codezero.errors import ConfigError
from codezero.system.plugins import blamed

MOST_TASKS = 100_000  # of a taskset; what follows is left out


class VerifiersTasks:
    """A taskset by the module that exports it. Implements `Taskset`; Hydra's `_target_` for the key `environment`.

    options: the taskset's own. All tasks are of one level, since a taskset says nothing of how hard they are."""

    levels = (1,)

    def __init__(self, taskset: str, *, solver: str = "", **options: Any) -> None:
        """Raises ConfigError for one that cannot be loaded or that is not single-turn."""
        self.name, self.solver = taskset.rpartition("/")[2].partition("@")[0].replace("_", "-").lower(), solver
        with blamed(ConfigError, f"environment: the taskset {taskset} cannot be loaded; it"):
            self._config = taskset_config_type(taskset)(id=taskset, **options)
            loaded = taskset_class(taskset)(self._config)
            self._tasks = list(islice(loaded, MOST_TASKS))
        for task in self._tasks:
            if task.NEEDS_CONTAINER or task.toolsets(task.config) or task.plugged_judges():
                what = f"a container, tools or a judge: {type(task).__name__}"
                raise ConfigError(f"environment: {taskset} has tasks that need {what}")
        self.size, self.version = len(self._tasks), f"verifiers {__version__}, {self._config.model_dump_json()}"

    def task(self, level: int, index: int) -> Task:
        task = self._tasks[index]
        system, prompt = task.data.system_prompt, task.data.prompt_text
        return Task(f"{system}\n\n{prompt}" if system else prompt, task)

    def score(self, task: Task, answer: str) -> float | None:
        """The mean of the task's rewards by their weights, within 0 and 1; None where none could be had."""
        asked: Any = task.answer
        user = vf.MessageNode(message=vf.UserMessage(content=asked.data.prompt_text))
        reply = vf.MessageNode(message=vf.AssistantMessage(content=answer), parent=0, sampled=True)
        seeded = vf.TraceTask(type=type(asked).__name__, data=asked.data, key=asked.key, hash=asked.hash)
        agent = vf.AgentInfo(config=vf.AgentConfig())
        trace = vf.Trace(task=seeded, agent=agent, nodes=[user, reply], is_completed=True)  # of one turn
        asyncio.run(asked.score(trace))
        known = [reward for reward in trace.rewards.values() if reward is not None]
        weight = sum(reward.weight for reward in known if reward.weight > 0)
        return min(1.0, max(0.0, sum(reward.value for reward in known) / weight)) if weight else None
