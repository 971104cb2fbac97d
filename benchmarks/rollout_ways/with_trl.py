"""TRL's own `GRPOTrainer.train`, as `rollout.py` measures it. Argument: a job.

The trainer stops between two generations until another turn is wanted. What is not generation counts as update:
scoring, the log-probabilities that it computes again, batches, the trainer's loop. Checkpointing of activations is off,
as with the node; TRL's default would cost it a second forward pass."""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from turns import Job, Turns

PASSES = 1000  # how often the prompts stand in the data: more often than there will be turns


class TimedTrainer(GRPOTrainer):
    """Notes how long generation takes."""

    seconds = 0.0
    generated = 0

    def _generate(self, prompts: list[Any]) -> Any:
        began = time.perf_counter()
        made = super()._generate(prompts)
        self.seconds += time.perf_counter() - began
        self.generated = sum(len(ids) for ids in made[1])
        return made


class TurnByTurn(TrainerCallback):
    """Lets the trainer go on by one generation and its optimiser steps at a time."""

    def __init__(self, turns: Turns, optimizer_steps: int):
        self.turns, self.optimizer_steps = turns, optimizer_steps
        self.trainer: TimedTrainer | None = None
        self.began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.turns.ready()
        self._wait(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.optimizer_steps == 0:
            assert self.trainer is not None
            whole, sampling = time.perf_counter() - self.began, self.trainer.seconds
            self.turns.done(sample=sampling, update=whole - sampling, tokens=self.trainer.generated)
            self.trainer.seconds = 0.0
            self._wait(control)

    def _wait(self, control: Any) -> None:
        if not self.turns.wanted():
            control.should_training_stop = True
        self.began = time.perf_counter()


def main() -> None:
    turns, job = Turns(), Job.read(Path(sys.argv[1]))
    torch.set_num_threads(job.threads)
    callback = TurnByTurn(turns, job.optimizer_steps)

    def rewarded(completions: list[Any], **_: Any) -> list[float | None]:
        return [job.reward(row % job.group_size) for row in range(len(completions))]

    with tempfile.TemporaryDirectory() as nowhere:
        settings = GRPOConfig(
            nowhere,
            num_generations=job.group_size,
            max_completion_length=job.new_tokens,
            temperature=1.0,
            per_device_train_batch_size=job.rows // job.optimizer_steps,
            steps_per_generation=job.optimizer_steps,
            gradient_accumulation_steps=1,
            activation_checkpointing=False,
            learning_rate=1e-6,
            lr_scheduler_type="constant",
            bf16=job.precision == "bfloat16",
            use_cpu=not torch.cuda.is_available(),
            max_steps=PASSES * job.optimizer_steps,
            shuffle_dataset=False,
            report_to="none",
            logging_strategy="no",
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = TimedTrainer(
            model=AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32),
            reward_funcs=rewarded,
            args=settings,
            train_dataset=Dataset.from_dict(
                {"prompt": [[{"role": "user", "content": prompt}] for prompt in job.prompts] * PASSES}
            ),
            processing_class=AutoTokenizer.from_pretrained(job.model),
            callbacks=[callback],
        )
        callback.trainer = trainer
        trainer.train()


if __name__ == "__main__":
    main()
