"""What the judged groups of one iteration add up to. Pure functions."""

from collections.abc import Sequence

from codezero.types import BELIEF, RolloutGroup, ScoredGroup


def mean_reward(scored: Sequence[ScoredGroup]) -> float | None:
    """Mean over every verdict that could be reached; None when there is none."""
    rewards = [verdict.reward for group in scored for verdict in group.verdicts if verdict.trainable]
    return sum(rewards) / len(rewards) if rewards else None


def success_at_proposals(scored: Sequence[ScoredGroup]) -> float | None:
    """Of the attempts at proposals, the share that the judge believes; None where there was no such attempt."""
    believed = [
        verdict.correctness >= BELIEF
        for group in scored
        if group.group.problem.proposer
        for verdict in group.verdicts
        if verdict.trainable
    ]
    return sum(believed) / len(believed) if believed else None


def best_proposer(scored: Sequence[ScoredGroup]) -> str | None:
    """The proposer whose problem taught most: judged success nearest to one half."""
    taught = [
        (abs(success - 0.5), group.group.problem.proposer)
        for group in scored
        if group.group.problem.proposer and (success := group.success) is not None
    ]
    return min(taught)[1] if taught else None


def count_tokens(groups: Sequence[RolloutGroup]) -> int:
    """Sampled tokens, EOS included."""
    return sum(len(completion.token_ids) for group in groups for completion in group.completions)
