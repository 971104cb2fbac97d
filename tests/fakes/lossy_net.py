"""A network of our own making: a private namespace for each node, and between them a wire that delays, loses or parts.

Packets are forwarded in user space, because kernels often lack netem. Nothing is added to the namespace of the tests.
Run as a program it is the keeper of one namespace: it opens a tunnel device there and hands it over."""

import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

TUNNEL = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN_WITHOUT_HEADER = 0x400454CA, 0x1001


def missing() -> str:
    """What this machine lacks for such a network, in words; empty when nothing."""
    if os.geteuid() != 0:
        return "namespaces need root"
    tools = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
    if tools or not TUNNEL.exists():
        return f"missing: {', '.join(tools) or TUNNEL}"
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True)
    return f"unshare -n: {tried.stderr.strip()}" if tried.returncode else ""


class LossyNet:
    """Hosts 10.77.0.1 to 10.77.0.`size`."""

    def __init__(self, size: int) -> None:
        self.delay_seconds, self.loss = 0.0, 0.0  # One way; share of packets
        self.parts: Sequence[set[int]] = ()  # Hosts that reach each other; empty: all do
        self._keepers = {host: _keeper(host) for host in range(1, size + 1)}
        self._ended = threading.Event()
        self._wire = threading.Thread(target=self._forward, daemon=True)
        self._wire.start()

    def inside(self, host: int) -> list[str]:
        """The beginning of a command that is to run on this host."""
        return ["nsenter", f"--net=/proc/{self._keepers[host][0].pid}/ns/net"]

    def close(self) -> None:
        self._ended.set()
        self._wire.join()
        for keeper, tunnel in self._keepers.values():
            os.close(tunnel)
            keeper.kill()
            keeper.wait()

    def _forward(self) -> None:
        tunnels = {tunnel: host for host, (_, tunnel) in self._keepers.items()}
        waiting: list[tuple[float, int, int, bytes]] = []
        poll, number = select.epoll(), 0
        for tunnel in tunnels:
            poll.register(tunnel, select.EPOLLIN)
        while not self._ended.is_set():
            pause = max(0.0, min(0.05, waiting[0][0] - time.monotonic())) if waiting else 0.05
            for tunnel, _ in poll.poll(pause):
                for packet in _packets(tunnel):
                    target = self._target(tunnels[tunnel], packet)
                    if target is not None:
                        number += 1
                        heapq.heappush(waiting, (time.monotonic() + self.delay_seconds, number, target, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):
                    os.write(self._keepers[target][1], packet)
        poll.close()

    def _target(self, source: int, packet: bytes) -> int | None:
        """The host a packet goes to; None when it is lost."""
        if packet[0] >> 4 != 4 or packet[16:19] != bytes([10, 77, 0]) or packet[19] not in self._keepers:
            return None
        parted = self.parts and not any({source, packet[19]} <= part for part in self.parts)
        return None if parted or random.random() < self.loss else packet[19]


def _packets(tunnel: int) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(found) < 64:
            found.append(os.read(tunnel, 65536))
    return found


def _keeper(host: int) -> tuple["subprocess.Popen[bytes]", int]:
    ours, theirs = socket.socketpair()
    command = ["unshare", "-n", sys.executable, __file__, str(host), str(theirs.fileno())]
    keeper = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    with ours:
        ours.settimeout(30)
        _, (tunnel,), _, _ = socket.recv_fds(ours, 1, 1)
    return keeper, tunnel


def keep(host: int, descriptor: int) -> None:
    """Opens the tunnel, hands it over, and stays: the namespace ends with its last process."""
    tunnel = os.open(TUNNEL, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH", b"tun0", IFF_TUN_WITHOUT_HEADER))
    for words in ("link set lo up", f"addr add 10.77.0.{host}/24 dev tun0", "link set tun0 mtu 1400 up"):
        subprocess.run(["ip", *words.split()], check=True)
    parent = os.getppid()
    with socket.socket(fileno=descriptor) as other:
        socket.send_fds(other, [b"x"], [tunnel])
    os.close(tunnel)
    while os.getppid() == parent:
        time.sleep(0.5)


if __name__ == "__main__":
    keep(int(sys.argv[1]), int(sys.argv[2]))
