"""A small Internet in network namespaces: open hosts, and homes behind routers that translate addresses.

Addresses are of public ranges, as nodes treat private ones apart; nothing leaves the namespaces. Needs root, `ip` and
`iptables`."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

import psutil

Router = Literal["restricted", "symmetric"]
"""restricted: keeps source ports and lets in what was asked for. symmetric: a random source port for each connection,
forgets those that are idle for a minute, and lets no UDP through."""
FAKES = Path(__file__).parents[1] / "fakes"


def missing() -> str:
    """What this machine lacks for it, in words; empty when nothing."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if tools := [tool for tool in ("ip", "iptables", "unshare") if shutil.which(tool) is None]:
        return f"missing: {', '.join(tools)}"
    tried = subprocess.run(["unshare", "-n", "iptables", "-t", "nat", "-L"], capture_output=True, text=True)
    return f"iptables in a namespace: {tried.stderr.strip()}" if tried.returncode else ""


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


class Internet:
    """45.50.0.0/16 on one bridge, and 2a0e:50::/32. The outside address of the `n`th host or router is 45.50.n.1."""

    def __init__(self) -> None:
        self._prefix, self._names, self._outside, self._inside = f"cz{os.getpid()}", list[str](), 0, 0
        self._lans: dict[str, str] = {}  # The first three numbers of the addresses behind a router
        self.nodes: list[Node] = []
        self._add("net")
        self._ip("net", "link add br0 type bridge")
        self._ip("net", "link set br0 up")

    def open(self, name: str, version: Literal[4, 6] = 4) -> str:
        """A host that everybody can dial; its address, of this version of IP."""
        self._add(name)
        return self._connect(name, version)

    def home(self, router: str, *hosts: str, kind: Router = "restricted") -> str:
        """Hosts behind a router that lets nothing in; its outside address."""
        self._add(router)
        address = self._connect(router)
        self._inside += 1
        inside, out = f"192.168.{self._inside}", f"o{self._outside}"
        self._lans[router] = inside
        self._ip(router, "link add lan type bridge")
        self._ip(router, f"addr add {inside}.1/24 dev lan")
        self._ip(router, "link set lan up")
        for number, host in enumerate(hosts, start=2):
            self._add(host)
            self._pair(router, host, f"l{number}")
            self._ip(router, f"link set l{number} master lan")
            self._ip(host, f"addr add {inside}.{number}/24 dev eth")
            self._ip(host, f"route add default via {inside}.1")
        self.inside(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        random_ports = ["--random-fully"] if kind == "symmetric" else []
        if kind == "symmetric":
            self.inside(router, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_timeout_established=60")
            self.inside(router, "iptables", "-A", "FORWARD", "-p", "udp", "-j", "DROP")
        self.inside(router, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", out, "-j", "MASQUERADE", *random_ports)
        kept = ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"]
        for chain in ("FORWARD", "INPUT"):
            self.inside(router, "iptables", "-A", chain, "-i", out, *kept)
            self.inside(router, "iptables", "-A", chain, "-i", out, "-j", "DROP")
        return address

    def proxy(self, router: str, target: str, port: int, delay: float, longest: float) -> tuple[str, "Node"]:
        """Where those behind it, who get out no other way, find the target at the same port; its state is `lost`."""
        self.inside(router, "iptables", "-I", "FORWARD", "-j", "DROP")
        here = f"{self._lans[router]}.1"
        made = self._start(router, "lossy_proxy.py", here, str(port), target, str(port), str(delay), str(longest))
        return here, made

    def renumber(self, router: str, before: str, after: str) -> None:
        """Give a router another outside address; what it had translated until then is lost."""
        device = f"o{before.split('.')[2]}"
        self._ip(router, f"addr del {before}/16 dev {device}")
        self._ip(router, f"addr add {after}/16 dev {device}")

    def link(self, host: str, state: Literal["up", "down"]) -> None:
        """Of a host behind a router."""
        self._ip(host, f"link set eth {state}")
        if state == "up":  # the kernel forgot it
            inside = json.loads(self._output(host, "ip", "-j", "-4", "addr", "show", "eth"))[0]["addr_info"][0]["local"]
            self._ip(host, f"route add default via {inside.rpartition('.')[0]}.1")

    def _output(self, host: str, *words: str) -> str:
        return subprocess.run([*self.at(host), *words], check=True, capture_output=True, text=True).stdout

    def at(self, host: str) -> list[str]:
        """What stands before a command that is to run there."""
        return ["ip", "netns", "exec", f"{self._prefix}{host}"]

    def inside(self, host: str, *words: str) -> None:
        run(*self.at(host), *words)

    def node(self, where: str, folder: Path, **settings: Any) -> "Node":
        """Start one there."""
        return self._start(where, "gossip_node.py", str(folder / where), json.dumps(settings))

    def _start(self, where: str, program: str, *arguments: str) -> "Node":
        self.nodes.append(Node([*self.at(where), sys.executable, str(FAKES / program), *arguments]))
        return self.nodes[-1]

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        for name in self._names:
            subprocess.run(["ip", "netns", "del", f"{self._prefix}{name}"], check=False, capture_output=True)

    def _add(self, name: str) -> None:
        run("ip", "netns", "add", f"{self._prefix}{name}")
        self._names.append(name)
        self._ip(name, "link set lo up")

    def _pair(self, end: str, other: str, device: str) -> None:
        """A cable between two namespaces: `device` in the first, `eth` in the other."""
        self._ip(end, f"link add {device} type veth peer name eth netns {self._prefix}{other}")
        self._ip(end, f"link set {device} up")
        self._ip(other, "link set eth up")

    def _connect(self, name: str, version: Literal[4, 6] = 4) -> str:
        self._outside += 1
        address, device = f"45.50.{self._outside}.1", f"b{self._outside}"
        address = address if version == 4 else f"2a0e:50:{self._outside}::1"
        self._pair("net", name, device)
        self._ip("net", f"link set {device} master br0")
        self._ip(name, f"link set eth name o{self._outside}")
        words = f"addr add {address}/16 dev" if version == 4 else f"-6 addr add {address}/32 nodad dev"
        self._ip(name, f"{words} o{self._outside}")
        return address

    def _ip(self, name: str, words: str) -> None:
        run("ip", "-n", f"{self._prefix}{name}", *words.split())


class Node:
    """A program in a namespace that ends with its input, and what it printed last."""

    def __init__(self, command: list[str]) -> None:
        self.state: dict[str, Any] = {}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            for line in lines:
                self.state = json.loads(line)

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def sleep(self, seconds: float) -> None:
        """As a laptop does that is closed."""
        processes = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        time.sleep(seconds)
        for process in reversed(processes):
            process.resume()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self._thread.join()
