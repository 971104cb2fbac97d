"""The node's own sampler and learner, as `rollout.py` measures them. Argument: a job."""

import sys
import time
from pathlib import Path

import torch
from turns import Job, Turns

from codezero.config import SolverConfig
from codezero.models.chat import encode_prompts
from codezero.models.generation import Sampler
from codezero.models.load import load_model
from codezero.solver.batch import Batch, TrainingRow
from codezero.solver.learner import TrlLearner


def main() -> None:
    turns, job = Turns(), Job.read(Path(sys.argv[1]))
    torch.set_num_threads(job.threads)
    precision = "auto" if job.precision == "bfloat16" else job.precision
    loaded = load_model(job.model, precision=precision, role="solver", for_training=True)
    config = SolverConfig(
        group_size=job.group_size,
        max_new_tokens=job.new_tokens,
        minibatches=job.optimizer_steps,
        learning_rate=1e-6,
    )
    learner, sampler = TrlLearner(loaded, config), Sampler(loaded)
    prompts = encode_prompts(loaded.tokenizer, job.prompts)
    mean = sum(map(job.reward, range(job.group_size))) / job.group_size
    turns.ready()
    while turns.wanted():
        began = time.perf_counter()
        groups = sampler.sample(
            job.prompts,
            group_size=job.group_size,
            max_new_tokens=job.new_tokens,
            temperature=1.0,
            generator_seed=learner.updates,
        )
        sampled = time.perf_counter()
        rows = [
            TrainingRow(tuple(prompt), completion.token_ids, completion.logprobs, job.reward(place) - mean)
            for prompt, group in zip(prompts, groups, strict=True)
            for place, completion in enumerate(group)
        ]
        learner.update(Batch(tuple(rows)))
        turns.done(
            sample=sampled - began, update=time.perf_counter() - sampled, tokens=sum(len(r.logprobs) for r in rows)
        )


if __name__ == "__main__":
    main()
