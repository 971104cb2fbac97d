"""A small real judge server for tests: vLLM's and Ollama's wire forms, and every way to be a bad server.

The log-probs are those of the embedded judge: how likely each token of a program is decides how far Yes outweighs No.
`POST /control` with `{"mode": "slow", "seconds": 60}` switches the mode while it runs. As a program:
`python tests/fakes/judge_server.py [--port 8000]`."""

# pyright: basic

import argparse
import json
import math
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from oracles.teacher_forced import teacher_forced

from codezero.code.agreement import agree
from codezero.code.answer import read_answer
from codezero.code.assertions import ANY, INT, STR, list_of
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.generation import OwnLoop
from codezero.models.load import LoadedModel, load_model
from codezero.nano import weights_directory

MODEL = "nano-judge"
CHAT, TEXT, OLLAMA = "/v1/chat/completions", "/v1/completions", "/api/chat"


@dataclass
class State:
    """What the server is told to do, and what it has seen."""

    mode: str = "ok"
    seconds: float = 0.0
    versions: dict[str, bytes] = field(default_factory=dict)  # Answers to GET, by path
    body: bytes = b""  # Sent in the mode `bytes`
    paths: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    cookies: int = 0
    at_once: int = 0
    most_at_once: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        with self.lock:
            self.paths.clear()
            self.bodies.clear()
            self.keys.clear()
            self.most_at_once = 0


KINDS = {"x": INT, "a": INT, "b": INT, "s": STR, "nums": list_of(INT)}  # Of the embedded family's parameters


class Judge:
    """The embedded judge as a server sees it: text in, log-probs out."""

    def __init__(self) -> None:
        self._loaded: LoadedModel = load_model(str(weights_directory("judge")), device="cpu", role="judge")
        self._lock = threading.Lock()
        self._own: dict[str, str] = {}

    def top(self, messages: list[dict[str, str]]) -> list[tuple[str, float]]:
        """[(token, log-prob)] likeliest first: Yes outweighs No as far as no token of the program is a surprise."""
        question, code = messages[0]["content"], self._as_own(messages[0]["content"], messages[1]["content"])
        if "ABSTAIN" in question:
            return [("Well", math.log(0.9)), ("Yes", math.log(0.05)), ("No", math.log(0.01))]
        with self._lock:
            prompt = encode_prompts(self._loaded.tokenizer, [question])[0]
            answer = encode_completions(self._loaded.tokenizer, [f"```python\n{code}\n```"])[0]
            (scores,) = teacher_forced(self._loaded.model, [prompt], [answer])
        surprise = float(scores.gap.clamp(min=-15).min())
        asked = messages[2]["content"]
        leaning = 0.5 if asked.endswith("Yes or No?") else -0.5  # the order sways it, as it does real models
        yes = 1 / (1 + math.exp(-(surprise + 3 + leaning + 0.01 * len(asked))))
        listed = {"Yes": 0.8 * yes, " Yes": 0.15 * yes, "No": 0.8 * (1 - yes), "NO": 0.15 * (1 - yes), "Maybe": 0.04}
        return sorted(((token, math.log(p)) for token, p in listed.items()), key=lambda entry: -entry[1])

    def _as_own(self, question: str, answer: str) -> str:
        """The program of an answer; the judge's own in its place, where that returns the same."""
        code = str(read_answer(answer, "", "only").code)
        head = re.search(r"def (\w+)\(([\w, ]+)\)", code)
        kinds = [KINDS.get(name, ANY) for name in head[2].split(", ")] if head else []
        if question not in self._own:
            with self._lock:
                prompts = encode_prompts(self._loaded.tokenizer, [question])
                (drawn,) = OwnLoop(self._loaded).draw(prompts, 1, 64, 0.01, 0)
            text = str(self._loaded.tokenizer.decode(drawn.ids, skip_special_tokens=True))
            self._own[question] = str(read_answer(text, "", "only").code)
        own = self._own[question]
        return own if head and code != own and agree(code, own, head[1], kinds) else code

    def tokens(self, text: str) -> tuple[list[str], list[float | None], list[dict[str, float] | None]]:
        """Spelling, log-prob and likeliest beside it of each token of `text`, and of one more."""
        tokenizer = self._loaded.tokenizer
        with self._lock:
            ids = encode_completions(tokenizer, [text])[0]
            logits = self._loaded.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()
        logprobs = logits.log_softmax(-1)
        ids = [*ids, int(logprobs[-1].argmax())]
        spelt = [str(tokenizer.decode([token])) for token in ids]
        own: list[float | None] = [None]
        top: list[dict[str, float] | None] = [None]
        for at, token in enumerate(ids[1:]):
            best = int(logprobs[at].argmax())
            own.append(float(logprobs[at, token]))
            top.append(
                {spelt[at + 1]: float(logprobs[at, token]), str(tokenizer.decode([best])): float(logprobs[at, best])}
            )
        return spelt, own, top


def entries(top: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"token": token, "logprob": value, "bytes": list(token.encode())} for token, value in top]


def chat_answer(top: list[tuple[str, float]]) -> dict[str, Any]:
    """As vLLM answers."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": top[0][0], "tool_calls": []},
                "logprobs": {"content": [{**entries(top)[0], "top_logprobs": entries(top)}]},
                "finish_reason": "length",
                "stop_reason": None,
            }
        ],
        "usage": {"prompt_tokens": 10, "total_tokens": 11, "completion_tokens": 1},
        "prompt_logprobs": None,
    }


def ollama_answer(top: list[tuple[str, float]]) -> dict[str, Any]:
    """As Ollama answers."""
    return {
        "model": MODEL,
        "created_at": "2026-01-01T00:00:00.0Z",
        "message": {"role": "assistant", "content": top[0][0]},
        "done": True,
        "done_reason": "length",
        "total_duration": 1,
        "logprobs": [{**entries(top)[0], "top_logprobs": entries(top)}],
    }


def text_answer(judge: Judge, prompt: str) -> dict[str, Any]:
    """As vLLM answers with `echo`."""
    tokens, own, top = judge.tokens(prompt)
    offsets = [sum(map(len, tokens[:at])) for at in range(len(tokens))]
    logprobs = {"text_offset": offsets, "token_logprobs": own, "tokens": tokens, "top_logprobs": top}
    choice = {"index": 0, "text": "".join(tokens), "logprobs": logprobs, "finish_reason": "length"}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL, "choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    judge: Judge
    state: State

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        body = self.state.versions.get(self.path)
        self.send(404, b'{"detail": "Not Found"}') if body is None else self.send(200, body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/control":
            for name, value in json.loads(body).items():
                setattr(self.state, name, value.encode() if name == "body" else value)
            return self.send(200, b"{}")
        with self.state.lock:
            self.state.paths[self.path] += 1
            self.state.bodies.append(json.loads(body))
            self.state.keys.add(self.headers.get("Authorization", ""))
            self.state.at_once += 1
            self.state.most_at_once = max(self.state.most_at_once, self.state.at_once)
        try:
            with suppress(ConnectionError):  # the other side has given up
                self.behave(json.loads(body))
        finally:
            with self.state.lock:
                self.state.at_once -= 1

    def behave(self, asked: dict[str, Any]) -> None:
        mode = self.state.mode
        if mode.isdigit():
            return self.send(int(mode), b'{"error": "so it is"}')
        getattr(self, mode.replace(" ", "_"))(asked)

    def ok(self, asked: dict[str, Any]) -> None:
        if asked["model"] != MODEL or self.path not in (CHAT, TEXT, OLLAMA):
            return self.send(404, b'{"error": "model not found"}')
        self.send(200, json.dumps(self.answer(asked)).encode())

    def slow(self, asked: dict[str, Any]) -> None:
        self.state.stopping.wait(self.state.seconds)
        self.ok(asked)

    def drip(self, asked: dict[str, Any]) -> None:
        """A byte now and then, for ever."""
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        while not self.state.stopping.wait(0.05):
            self.wfile.write(b" ")
            self.wfile.flush()

    def closes(self, asked: dict[str, Any]) -> None:
        self.close_connection = True

    def redirects(self, asked: dict[str, Any]) -> None:
        self.send(307, b"", Location=f"http://{self.headers['Host']}/elsewhere")

    def cookies(self, asked: dict[str, Any]) -> None:
        self.state.cookies += "Cookie" in self.headers
        self.send(200, json.dumps(self.answer(asked)).encode(), **{"Set-Cookie": f"a={'x' * 2000}; Path=/"})

    def huge(self, asked: dict[str, Any]) -> None:
        self.send(200, b'{"done": true, "choices": [' + b" " * (32 << 20) + b"]}")

    def bytes(self, asked: dict[str, Any]) -> None:
        self.send(200, self.state.body)

    def nan(self, asked: dict[str, Any]) -> None:
        self.send(200, re.sub(r'"logprob": [-\d.e]+', '"logprob": NaN', json.dumps(self.answer(asked))).encode())

    def every_other(self, asked: dict[str, Any]) -> None:
        """Fails each question once."""
        with self.state.lock:
            first = str(asked) not in self.state.failed
            self.state.failed.add(str(asked))
        self.send(503, b"") if first else self.ok(asked)

    def no_echo(self, asked: dict[str, Any]) -> None:
        self.send(404, b"") if self.path == TEXT else self.ok(asked)

    def forgets_the_prompt(self, asked: dict[str, Any]) -> None:
        self.ok(asked | {"prompt": "\n"} if self.path == TEXT else asked)

    def reads_little(self, asked: dict[str, Any]) -> None:
        self.send(400, b"") if "LONG" in str(asked) else self.ok(asked)

    def stumbles(self, asked: dict[str, Any]) -> None:
        """Hangs over some programs only."""
        if "HANG" in str(asked):
            self.state.stopping.wait(60)
        self.ok(asked)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self.path == TEXT:
            assert asked["echo"] and asked["logprobs"] == 1 and asked["max_tokens"] == 1
            return text_answer(self.judge, asked["prompt"])
        assert asked["logprobs"] is True and asked["top_logprobs"] == 20
        top = self.judge.top(asked["messages"])
        if self.path == CHAT:
            assert asked["max_tokens"] == 1 and asked["temperature"] == 0
            return chat_answer(top)
        assert asked["stream"] is False and asked["options"] == {"num_predict": 1, "temperature": 0}
        return ollama_answer(top)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, judge: Judge, port: int = 0) -> None:
        self.state = State()
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), type("OwnHandler", (Handler,), {"judge": judge, "state": self.state}))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Connections that are kept alive end with the server, as when its process dies."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


@contextmanager
def serving(judge: Judge, port: int = 0) -> Iterator[Server]:
    """A server in a thread; port 0 takes a free one."""
    server = Server(judge, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.state.stopping.set()
        server.shutdown()
        server.hang_up()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    with serving(Judge(), parser.parse_args().port) as server, suppress(KeyboardInterrupt):
        print(server.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
