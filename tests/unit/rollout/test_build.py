"""What the node says is to be started on other machines."""

import shlex

from codezero.cli import build_parser
from codezero.config import NodeConfig
from codezero.rollout.build import host_commands
from codezero.settings import compose

SERVERS = "rollout.servers=[http://b:18431/0,http://b:18431/1,http://c:18431/0]"


def node() -> NodeConfig:
    return compose([SERVERS, "weights.listen=a:18430", "solver.max_new_tokens=77", "solver.max_prompt_tokens=100"])


def test_each_other_machine_gets_a_command_that_its_own_parser_takes() -> None:
    commands = host_commands(node())
    assert len(commands) == 2
    for command, place, count in zip(commands, ("b:18431", "c:18431"), (2, 1), strict=True):
        program, *words = shlex.split(command)
        options = build_parser().parse_args(words)
        assert (program, options.listen, options.weights) == ("codezero", place, "http://a:18430")
        there = compose([*options.ports, *options.overrides])
        assert (there.rollout.start, there.solver.max_new_tokens, there.solver.max_prompt_tokens) == (count, 77, 100)
        assert there.model.solver == "nano"


def test_a_node_with_servers_of_its_own_names_no_other_machine() -> None:
    assert host_commands(compose(["rollout.start=1"])) == []
