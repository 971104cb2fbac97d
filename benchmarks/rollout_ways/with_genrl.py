"""genrl's own trainer class, as `rollout.py` measures it; runs in genrl's environment. Arguments: a job, and how.

`shipped`: its settings are its defaults, minibatches of 2 rows and checkpointing of activations among them. `tuned`:
as many optimiser steps as the others take, and no checkpointing. Its game state, prompts and rewards are filled as its
manager fills them; generation and training are its code, untouched."""

import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from genrl.state import GameState, WorldState
from genrl.trainer.grpo_trainer import GRPOLanguageTrainerModule, GRPOTrainerConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from turns import Job, Turns

AGENT = 0


def played(job: Job, texts: list[list[str]]) -> GameState:
    """A game of one stage: each prompt a node, its completions the action."""
    state = GameState(round=0, stage=0)
    state._init_game([(f"{i}", WorldState([text], [], [])) for i, text in enumerate(job.prompts)], [AGENT])
    for i, group in enumerate(texts):
        state.trees[AGENT][f"{i}"].append_node_actions(0, 0, group)
    state.stage = 1
    return state


def messages(prompts: list[str]) -> list[dict[str, Any]]:
    return [{"prompt": [{"role": "user", "content": prompt}]} for prompt in prompts]


def main() -> None:
    turns, job, how = Turns(), Job.read(Path(sys.argv[1])), sys.argv[2]
    torch.set_num_threads(job.threads)
    changes: dict[str, Any] = {}
    if how == "tuned":
        changes = {"minibatch_size": job.rows // job.optimizer_steps, "enable_gradient_checkpointing": False}
    tokenizer = AutoTokenizer.from_pretrained(job.model, padding_side="left")
    nodes = {place: (AGENT, f"{place}", 0) for place in range(len(job.prompts))}
    data = SimpleNamespace(prepare_input=lambda inputs, stage: (messages(job.prompts), nodes))
    group = [job.reward(place) for place in range(job.group_size)]
    rewards = {0: {AGENT: {f"{i}": [group] for i in range(len(job.prompts))}}}
    with tempfile.TemporaryDirectory() as nowhere:
        trainer = GRPOLanguageTrainerModule(
            [AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32)],
            GRPOTrainerConfig(num_generations=job.group_size, max_new_tokens=job.new_tokens, **changes),
            processing_class=tokenizer,
            log_dir=nowhere,
        )
        turns.ready()
        while turns.wanted():
            began = time.perf_counter()
            texts = trainer.generate(messages(job.prompts))
            sampled = time.perf_counter()
            trainer.train(played(job, texts), data, rewards)
            ended = time.perf_counter()
            counted = sum(len(ids) for texts_ in texts for ids in tokenizer(texts_)["input_ids"])
            turns.done(sample=sampled - began, update=ended - sampled, tokens=counted)


if __name__ == "__main__":
    main()
