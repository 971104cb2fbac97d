"""Members behind routers learn from each other without a setting, through routers in namespaces; no models.

Does not show: routers of providers; hole punching, which is not done; hours. A sleep is a process that is stopped."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.homes import OPEN, PATIENCE, all_hear, behind_proxies, open_node, received, two_homes, within
from builders.internet import Internet, Router, missing
from builders.swarm import SWARM, eventually

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(missing()), reason=missing() or "namespaces"),
]


@pytest.fixture
def net() -> Iterator[Internet]:
    made = Internet()
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("kind", ["restricted", "symmetric"])
def test_two_homes_learn_from_each_other_by_default(net: Internet, tmp_path: Path, kind: Router) -> None:
    f, way = open_node(net, tmp_path)
    homes = first, second = two_homes(net, tmp_path, way, kind)
    pairs = ((first, second), (second, first), (first, f), (second, f))
    within(PATIENCE, lambda: all(node.state.get("reachable") is False for node in homes))
    seconds = within(PATIENCE, lambda: all(received(*pair) for pair in pairs))
    before = [received(*pair) for pair in pairs]
    time.sleep(45)
    groups = [received(*pair) - start for pair, start in zip(pairs, before, strict=True)]
    print(f"{kind}: after {seconds:.0f} s, then groups of each other {groups[:2]}, of the founder {groups[2:]}")
    print(*(node.state["counts"] for node in (f, *homes)), sep="\n")
    assert 3 * min(groups[:2]) >= max(groups[2:]) > 0  # `bench homes` has the shares, which a busy machine moves
    assert first.state["ways"][second.state["me"]] == second.state["ways"][first.state["me"]] == f.state["me"]
    assert not any(node.state["counts"].get("swarm/network_restarts") for node in (f, *homes))


def test_two_with_ipv6_alone_reach_each_other(net: Internet, tmp_path: Path) -> None:
    address, _ = net.open("F", 6), net.open("O", 6)
    settings = OPEN | {"host": "::"}
    f = net.node("F", tmp_path, **settings)
    addresses = eventually(lambda: f.state.get("addresses", []), PATIENCE)
    o = net.node("O", tmp_path, **settings, bootstrap=[way for way in addresses if f"/ip6/{address}/" in way])
    within(PATIENCE, lambda: received(o, f) > 0 and received(f, o) > 0)
    within(PATIENCE, lambda: o.state["reachable"] is f.state["reachable"] is True)


def test_two_behind_one_router_learn_from_each_other(net: Internet, tmp_path: Path) -> None:
    """Relayed too: nobody tells them each other's private addresses, lest members be sent into their own networks."""
    f, way = open_node(net, tmp_path)
    net.home("R1", "N1", "N2")
    first, second = (net.node(name, tmp_path, **OPEN, bootstrap=way) for name in ("N1", "N2"))
    within(PATIENCE, lambda: first.state.get("reachable") is second.state.get("reachable") is False)
    within(PATIENCE, lambda: received(first, second) > 8 and received(second, first) > 8)
    ways = [eventually(lambda: first.state["ways"].get(second.state["me"]), PATIENCE),
            eventually(lambda: second.state["ways"].get(first.state["me"]), PATIENCE)]  # fmt: skip
    assert ways == [f.state["me"]] * 2


def test_a_slow_proxy_that_loses_connections_keeps_nobody_from_the_others(net: Internet, tmp_path: Path) -> None:
    _, way = open_node(net, tmp_path)
    homes, proxies = behind_proxies(net, tmp_path, way)
    seconds = all_hear(homes, PATIENCE)
    within(PATIENCE, lambda: min(proxy.state["lost"] for proxy in proxies) >= 2)
    lost = [proxy.state["lost"] for proxy in proxies]
    print(f"{seconds:.0f} s, and {all_hear(homes, PATIENCE):.0f} s after {lost} connections were lost")


def test_who_relays_nothing_is_passed_over_and_the_next_goes_on_when_it_is_gone(net: Internet, tmp_path: Path) -> None:
    f, way = open_node(net, tmp_path, relay=False)
    other, _ = open_node(net, tmp_path, "O", bootstrap=way)
    first, second = two_homes(net, tmp_path, way)
    within(PATIENCE, lambda: received(first, second) > 0 and received(second, first) > 0)
    within(PATIENCE, lambda: first.state["ways"].get(second.state["me"]) == other.state["me"])
    assert not f.state["counts"].get("swarm/bytes_relayed")
    f.kill()
    before = received(first, second)
    print(f"after the founder's end {within(PATIENCE, lambda: received(first, second) > before + 8):.0f} s")
    other.kill()
    remedy = f"no open member answers in swarm {SWARM}; add a way in to swarm.bootstrap"
    seconds = within(PATIENCE, lambda: all(remedy in node.state["reachability"] for node in (first, second)))
    print(f"that nobody is left is said after {seconds:.0f} s")
    back = net.node("F", tmp_path, **OPEN)
    within(PATIENCE, lambda: bool(back.state))
    print(f"after the founder's return {all_hear([back, first, second], PATIENCE):.0f} s")


def test_a_stranger_of_another_swarm_is_not_relayed(net: Internet, tmp_path: Path) -> None:
    f, way = open_node(net, tmp_path)
    net.home("R1", "N1")
    net.home("R2", "N2")
    member = net.node("N1", tmp_path, **OPEN, bootstrap=way)
    stranger = net.node("N2", tmp_path, **OPEN, bootstrap=way, name="another")
    within(PATIENCE, lambda: received(member, f) > 16 and bool(stranger.state))
    assert not received(stranger, f) and not received(stranger, member)
    assert not f.state["counts"].get("swarm/bytes_relayed")


def test_who_was_away_is_heard_again(net: Internet, tmp_path: Path) -> None:
    """A router gets another address, a link is down for a minute, a laptop sleeps, a member comes back elsewhere."""
    f, way = open_node(net, tmp_path)
    address = net.home("R1", "N1")
    net.home("R2", "N2")
    net.home("R3", "N3")
    first, second = (net.node(name, tmp_path, **OPEN, bootstrap=way) for name in ("N1", "N2"))
    print(f"at first {all_hear([f, first, second], PATIENCE):.0f} s")
    net.renumber("R1", address, "45.50.77.1")
    print(f"another address {all_hear([f, first, second], PATIENCE):.0f} s")
    net.link("N1", "down")
    time.sleep(60)
    net.link("N1", "up")
    print(f"a minute without a link {all_hear([f, first, second], PATIENCE):.0f} s")
    first.sleep(90)
    print(f"a sleep of 90 s {all_hear([f, first, second], PATIENCE):.0f} s")
    first.kill()
    (tmp_path / "N1").rename(tmp_path / "N3")
    moved = net.node("N3", tmp_path, **OPEN, bootstrap=way)
    within(PATIENCE, lambda: bool(moved.state))
    assert moved.state["me"] == first.state["me"]
    print(f"another place {all_hear([f, moved, second], PATIENCE):.0f} s")
    assert not any(node.state["counts"].get("swarm/refused_duplicate") for node in (f, second, moved))


def test_everybody_of_eight_hears_everybody(net: Internet, tmp_path: Path) -> None:
    nodes, way = [], list[str]()
    for name in ("F", "O"):
        node, ways = open_node(net, tmp_path, name, bootstrap=way)
        nodes, way = [*nodes, node], [*way, *ways]
    for number in range(6):
        net.home(f"R{number}", f"N{number}", kind="symmetric" if number % 2 else "restricted")
        nodes.append(net.node(f"N{number}", tmp_path, **OPEN, bootstrap=way))
    within(PATIENCE, lambda: all(len(node.state.get("received", {})) == 7 for node in nodes))
    print([f"{node.state['seconds']:.0f} s: {sorted(node.state['received'].values())}" for node in nodes])
