"""A program for test_hub.py: draws from CodeContests until the hub, told to fall silent, is needed again."""

import json
import logging
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress

from datasets import config

from codezero.config import DataConfig
from codezero.environments.code import CodeEnvironment
from codezero.problems.stream import MixedStream

logging.basicConfig(level=logging.WARNING, format="WARNED %(message)s")
stream = MixedStream(
    CodeEnvironment(), DataConfig(sources=["code_contests"], wait_seconds=120.0), seed=0, peer_id="a", batch=1
)
drawn = [stream.next_batch([])[0]]
with suppress(urllib.error.HTTPError):
    urllib.request.urlopen(f"{config.HF_ENDPOINT}/silence", timeout=5)
drawn += [stream.next_batch([])[0] for _ in range(79)]
ids = len({problem.id for problem in drawn})
told = {"sources": Counter(problem.source for problem in drawn), "ids": ids, "metrics": stream.metrics()}
print(json.dumps(told))
