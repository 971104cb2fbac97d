"""The committed bytecode is what the source compiles to, speaks as 0.4.2 does, and costs what the page says."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders.evm import ABI, Contract, Evm, account, deployed, hash_of, type_of

from codezero.chain.contract import ARTIFACTS

ROOT = Path(__file__).parents[3]
CONTRACTS = ROOT / "contracts"
SOURCE = CONTRACTS / "SwarmCoordinator.sol"
ARTIFACT = ARTIFACTS / "SwarmCoordinator.json"
FOUNDER = account(0)
FUNCTIONS_0_4_2 = """
    BOOTNODE_MANAGER_ROLE() OWNER_ROLE() STAGE_MANAGER_ROLE() UPGRADE_INTERFACE_VERSION() addBootnodes(string[])
    clearBootnodes() currentRound() currentStage() getBootnodes() getBootnodesCount() getEoa(string[])
    getPeerId(address[]) getPeerVoteCount(uint256,string) getRoundStageReward(uint256,uint256,address[])
    getTotalRewards(string[]) getTotalWins(string) getVoterVoteCount(string) getVoterVotes(uint256,string)
    grantRole(bytes32,address) hasRole(bytes32,address) hasSubmittedRoundStageReward(uint256,uint256,address)
    initialize(address) proxiableUUID() registerPeer(string) removeBootnode(uint256) revokeRole(bytes32,address)
    stageCount() submitReward(uint256,uint256,int256,string) submitWinners(uint256,string[],string) uniqueVotedPeers()
    uniqueVoters() updateStageAndRound() upgradeToAndCall(address,bytes) voterLeaderboard(uint256,uint256)
    winnerLeaderboard(uint256,uint256)
"""
ERRORS_0_4_2 = {
    "InvalidInitialization": "f92ee8a9", "OnlyOwner": "5fc483c5", "OnlyStageManager": "0719ac8c",
    "OnlyBootnodeManager": "014c1cb5", "PeerIdAlreadyRegistered": "723dc675", "InvalidRoundNumber": "4197f6ea",
    "InvalidStageNumber": "f7d20563", "RewardAlreadySubmitted": "e39ce02e", "InvalidVoterPeerId": "1614b50c",
    "WinnerAlreadyVoted": "3d51d827", "InvalidVote": "d5dd0c66", "InvalidBootnodeIndex": "7d8aaf0e",
    "UUPSUnauthorizedCallContext": "e07c8dba", "UUPSUnsupportedProxiableUUID": "aa1d49a4",
    "ERC1967InvalidImplementation": "4c9c8ce3", "ERC1967NonPayable": "b398979f", "FailedCall": "d6bda275",
}  # fmt: skip


def entries(kind: str) -> list[dict[str, Any]]:
    return [entry for entry in ABI if entry["type"] == kind]


def test_the_artifact_is_of_this_source() -> None:
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest() == json.loads(ARTIFACT.read_bytes())["sourceSha256"], (
        "the contract was changed and not compiled: run `npm ci && npm run compile` in contracts/"
    )


def test_the_compiler_is_the_pinned_one() -> None:
    package = json.loads((CONTRACTS / "package.json").read_text())
    lock = json.loads((CONTRACTS / "package-lock.json").read_text())
    version = package["devDependencies"]["solc"]
    assert lock["packages"]["node_modules/solc"]["version"] == version == "0.8.29"
    assert json.loads(ARTIFACT.read_bytes())["compiler"].startswith(f"{version}+")
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry]
    assert all("integrity" in entry for name, entry in lock["packages"].items() if name)


def run(command: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=150)


@pytest.fixture(scope="module")
def compiler() -> Path:
    """The directory of installed node modules; asks npm once and leaves them for the next run."""
    node, npm, modules = shutil.which("node"), shutil.which("npm"), CONTRACTS / "node_modules"
    if node is None or npm is None:
        pytest.skip("node and npm are not installed")
    if not (modules / "solc" / "package.json").exists():
        try:
            done = run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], CONTRACTS)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not install the compiler in time")
        if done.returncode:
            pytest.skip(f"npm could not install the compiler: {done.stderr.strip().splitlines()[-1:]}")
    return modules


@pytest.mark.slow
def test_compiling_again_gives_the_same_bytes(compiler: Path) -> None:
    done = run(["node", "compile.mjs", "--check"], compiler.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_functions_and_errors_of_0_4_2_keep_their_selectors() -> None:
    functions = {f"{entry['name']}({type_of(entry)})" for entry in entries("function")}
    assert set(FUNCTIONS_0_4_2.split()) <= functions
    assert ERRORS_0_4_2.items() <= {entry["name"]: hash_of(entry)[:4].hex() for entry in entries("error")}.items()


def test_the_page_names_every_addition() -> None:
    page = (ROOT / "docs" / "contract.md").read_text()
    known = {signature.split("(")[0] for signature in FUNCTIONS_0_4_2.split()} | ERRORS_0_4_2.keys()
    added = {entry["name"] for entry in [*entries("function"), *entries("error")]} - known
    assert not [name for name in sorted(map(str, added)) if f"`{name}" not in page]


def test_the_page_has_the_shape_of_every_event() -> None:
    page = (ROOT / "docs" / "contract.md").read_text()
    for entry in entries("event"):
        parts = [f"{part['type']} {part['name']}{chr(92) + '*' if part['indexed'] else ''}" for part in entry["inputs"]]
        row = rf"^\| (\w+, )?{entry['name']}(, \w+)? \| {re.escape(', '.join(parts))} \|$"
        assert re.search(row, page, re.MULTILINE), entry["name"]


def name(number: int) -> str:
    return f"QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWj{number:04}"


def vote(swarm: Contract, round_number: int, winners: list[str], voter: int) -> int:
    return swarm.send("submitWinners", round_number, winners, name(voter), sender=account(1 + voter % 2)).gas


def measured() -> dict[str, int]:
    """Gas by what was done; ids have 46 bytes unless it says otherwise."""
    swarm = deployed(Evm(), FOUNDER)
    assert swarm.deployment is not None
    gas = {"deploy": swarm.deployment.gas}
    gas["registerPeer, first of the account"] = swarm.send("registerPeer", name(0), sender=account(1)).gas
    gas["registerPeer, later"] = [
        swarm.send("registerPeer", name(number), sender=account(1 + number % 2)).gas for number in range(1, 100)
    ][-1]
    gas["submitReward, first of the peer"] = swarm.send("submitReward", 0, 0, 5, name(0), sender=account(1)).gas
    gas["submitWinners, 1 winner, first ever"] = vote(swarm, 0, [name(1)], 0)
    costs = [vote(swarm, 0, [name(voter + 1)], voter) for voter in range(1, 99)]
    gas["submitWinners, 1 winner, boards filling (dearest)"] = max(costs)
    gas["updateStageAndRound, next stage"] = swarm.send("updateStageAndRound", sender=FOUNDER).gas
    swarm.send("updateStageAndRound", sender=FOUNDER)
    gas["updateStageAndRound, next round"] = swarm.send("updateStageAndRound", sender=FOUNDER).gas
    gas["submitReward, later"] = swarm.send("submitReward", 1, 0, 5, name(0), sender=account(1)).gas
    costs = [vote(swarm, 1, [name(98 - voter)], voter) for voter in range(10)]
    gas["submitWinners, 1 winner, boards of 99 (dearest)"] = max(costs)
    gas["submitWinners, 64 winners on the board"] = vote(swarm, 1, [name(number) for number in range(30, 94)], 20)
    fresh = [f"{number:0128}" for number in range(64)]
    gas["submitWinners, 64 unknown ids of 128 bytes"] = vote(swarm, 1, fresh, 21)
    gas["addBootnodes, 2 of 76 bytes"] = swarm.send("addBootnodes", ["x" * 76, "y" * 76], sender=FOUNDER).gas
    return gas


def test_the_gas_on_the_page_is_what_it_costs() -> None:
    page = (ROOT / "docs" / "contract.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([\d,]+) \|", page, re.MULTILINE))
    assert {what: int(gas.replace(",", "")) for what, gas in rows.items()} == measured()
