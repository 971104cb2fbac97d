"""A taskset of the library verifiers: a word backwards."""

from collections.abc import Iterator

import verifiers.v1 as vf


class WordData(vf.TaskData):
    answer: str


class WordTask(vf.Task[WordData]):
    @vf.reward
    async def exact(self, task: WordData, trace: vf.Trace) -> float:
        return float(trace.last_reply == task.answer)

    @vf.reward(weight=0.25)
    async def long(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) > 2)


class WordConfig(vf.TasksetConfig):
    words: int = 64


class Words(vf.Taskset[WordTask, WordConfig]):
    def load(self) -> Iterator[WordTask]:
        for number in range(self.config.words):
            word = format(number * 7919 + 1000, "x")
            yield WordTask(WordData(prompt=f"Reverse: {word}", answer=word[::-1]), self.config.task)


__all__ = ["Words"]
