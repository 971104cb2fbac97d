"""`codezero swarm create` and `codezero swarm join`: found a swarm that others can join with one code or one file.

Both end in the settings of an ordinary node; the founder's account may also open the rounds, and his node answers those
who come with its code."""

import contextlib
import ipaddress
import os
import re
import time
from dataclasses import replace
from pathlib import Path

from codezero.chain import invitation as terms
from codezero.chain.bounded_http import shown
from codezero.chain.build import chain_access, open_wallet, read_only
from codezero.chain.contract import ContractCoordinator, Sender, deploy
from codezero.chain.devchain_process import ChainEndpoint
from codezero.chain.errors import ChainUnreachableError
from codezero.chain.invitation import Invitation, read_invitation
from codezero.chain.provider import Ask, ChainClient
from codezero.chain.wallet import KeystoreWallet
from codezero.config import CODE, ChainConfig, EvaluatorConfig, NodeConfig
from codezero.environments.build import build_environment
from codezero.errors import ConfigError, InviteError, UnreachableError
from codezero.fitting import with_login
from codezero.models.digest import weights_digest
from codezero.models.hardware import source_of
from codezero.settings import quoted
from codezero.swarm.build import visitor
from codezero.swarm.identity import Identity
from codezero.swarm.network_status import outward_address, own_addresses, port_of
from codezero.swarm.wire import DERIVED
from codezero.swarm.wire import VERSION as PROTOCOL
from codezero.system.files import write_new
from codezero.system.http_client import is_loopback

PULL_SECONDS, PULL_PAUSE = 60.0, 1.0  # Until the founder's node must have answered, which prints its code early


def create_swarm(config: NodeConfig, out: Path, chain: contextlib.ExitStack) -> list[str]:
    """Deploy the contract, name this node as the way in, and write the invitation to `out`; lines for the founder.

    chain: an embedded one is served until this is closed, so that whoever has the invitation at once finds it there.
    Raises ConfigError, WalletError, ModelError, ChainError."""
    if out.exists():
        raise ConfigError(f"{out} exists; an invitation is never overwritten: move it away or choose --out")
    if config.evaluator.kind == "custom":
        raise ConfigError("evaluator.kind=custom: an invitation names no code; drop it here, and join with it later")
    if config.chain.kind == "clock":
        raise ConfigError("chain.kind=clock keeps no members and no points; found a swarm with embedded or rpc")
    config, environment = with_login(config), build_environment(config)
    identity = Identity.load_or_create(Path(config.swarm.identity))
    bootnodes = _own_addresses(config, identity.peer_id)
    wallet = open_wallet(config.chain)
    if not isinstance(wallet, KeystoreWallet):
        why = "an invitation is signed with a keystore, and this account is kept by a signer or the login"
        raise ConfigError(f"{why}; name a keystore of your own with chain.wallet=FILE")
    client = chain_access(config.chain, wallet, chain, visitor)
    sender, contract = Sender(client, wallet), config.chain.contract
    block = config.chain.contract_block if contract else client.eth.block_number
    if contract and not ContractCoordinator(client, contract).has_role("OWNER_ROLE", wallet.address):
        raise ConfigError(f"chain.contract={contract} does not belong to this account, {wallet.address}")
    judge = judge_of(config.evaluator)  # may take minutes, and comes before what costs coins
    coordinator = ContractCoordinator(client, contract := contract or deploy(sender), sender)
    coordinator.send("addBootnodes", bootnodes)
    name, digest = config.swarm.name, environment.digest
    name = f"{name}-{contract[2:10].lower()}" if name == "codezero" else name
    protocol, learned = (DERIVED, environment.name) if digest else (PROTOCOL, "")
    network = terms.NetworkPart(name, protocol, bootnodes, learned, digest)
    place = terms.ChainPart(client.chain_id, _public(client), contract, config.chain.round_seconds, block)
    unsigned = Invitation(version=1, founder=wallet.address, chain=place, network=network, judge=judge)
    invitation = terms.signed(unsigned, wallet.sign_message)
    terms.write_invitation(out, invitation)
    return [
        f"swarm {invitation.network.name}: contract {contract} on chain {client.chain_id}",
        f"invitation: {out}, which this account's node gives to whoever has its code",
        code_of(invitation),
    ]


def _public(client: ChainClient) -> list[str]:
    """Return its addresses without what may hold a key: the path where it is this machine's, else all of it."""
    bare = {url: shown(url) for url in client.urls}
    if hidden := [where for url, where in bare.items() if url.rstrip("/") != where]:
        rest = "it is not in the invitation; every node, this one too, names its own at each start: chain.rpc_urls=[…]"
        print(f"codezero: the path of {', '.join(hidden)} may hold a key: {rest}", flush=True)
    return [where for url, where in bare.items() if is_loopback(url) or where not in hidden]


def code_of(invitation: Invitation) -> str:
    """Say how others join."""
    here = all("/127.0.0.1/" in address for address in invitation.network.bootnodes)
    where = " on this machine, as the node listens on 127.0.0.1 alone" if here else ""
    command = f"codezero swarm join {terms.encode_code(invitation)}"
    return f"others join with this code, while the node runs{where}:\n  {command}"


def pulled(code: str, config: NodeConfig, stack: contextlib.ExitStack) -> tuple[Path, Ask | None]:
    """Return the file of the invitation that a code names, and how it was asked for; None: it came at an earlier start.
    Raises InviteError for what is no code, a founder who cannot be reached, and an answer that is not what it names."""
    wanted = terms.decode_code(code)
    path = Path(config.run.directory) / "invitations" / f"{wanted.digest.hex()}.toml"
    if path.exists():
        return path, None
    print(f"codezero: asking the founder of {wanted.name} for the invitation", flush=True)
    ask, end, failures = visitor(stack), time.monotonic() + PULL_SECONDS, dict[str, str]()
    while True:
        for address in wanted.addresses:
            try:
                raw = ask(address, b"", (end - time.monotonic()) / len(wanted.addresses))
            except UnreachableError as error:
                failures[address] = str(error)
                continue
            if terms.decode_invitation(raw, "what the founder's node sent").digest != wanted.digest:
                raise InviteError("the founder's node has another invitation than the code names; ask for its new code")
            write_new(path, raw, 0o644)
            return path, ask
        if time.monotonic() + PULL_PAUSE >= end:
            late, why = f"did not answer within {PULL_SECONDS:g} s", "; ".join(failures.values())
            raise InviteError(f"the founder's node {late}; is it running, and is its port open to this machine? {why}")
        time.sleep(PULL_PAUSE)


def joined(place: str, config: NodeConfig) -> list[str]:
    """Return the settings, as overrides, of a node in the swarm of an invitation: a file, or a code for it.

    `config` holds what the user set. Raises InviteError for one that was changed, is of another protocol, wants
    another judge, or whose contract is not the founder's; a chain that does not answer is only warned of."""
    with contextlib.ExitStack() as stack:
        path, ask = Path(place), None
        if not os.path.exists(place) and not path.suffix:  # a Path would fail on a long one
            path, ask = pulled(place, config, stack)
        invitation = read_invitation(path)
        judge, network, own = invitation.judge, invitation.network, _own(invitation, config)
        environment, protocol = build_environment(config), DERIVED if network.environment else PROTOCOL
        if network.protocol != protocol:
            mend = "update this node" if network.protocol > protocol else "use an older release"
            versions = f"version {network.protocol} of the wire format and this node version {protocol}"
            raise InviteError(f"the swarm speaks {versions}; {mend}")
        if (network.environment or CODE, network.digest) != (environment.name, environment.digest):
            here = f"{environment.name} {environment.digest[:12]}".strip()
            theirs = f"the swarm learns the environment {network.environment or CODE} {network.digest[:12]}"
            mend = "name the founder's, in the founder's version, with environment=…"
            raise InviteError(f"{theirs} and this node {here}; {mend}")
        listed = _check_chain(invitation, config, stack, ask)
    digest = judge.digest and judge_of(replace(config.evaluator, model=judge.model)).digest  # reads the weights
    if digest and digest != judge.digest:
        theirs = f"the swarm's judge is {judge.model} with the digest {judge.digest[:12]}…"
        here = f"what is here under that name has {digest[:12]}…"
        raise InviteError(f"{theirs}, and {here}; get the founder's revision, or rewards would not compare")
    others = [address for address in dict.fromkeys([*network.bootnodes, *listed]) if address not in own]
    overrides = ["network=peer", f"swarm.name={quoted(network.name)}", f"evaluator.model={quoted(judge.model)}"]
    overrides += [f"swarm.bootstrap=[{','.join(map(quoted, others))}]", *chain_overrides(invitation, config)]
    if own:
        print(f"codezero: {code_of(invitation)}", flush=True)
        overrides.append(f"swarm.invitation={quoted(str(path.resolve()))}")
        if not config.swarm.port:
            overrides.append(f"swarm.port={port_of(*own)}")
    return overrides


def _own(invitation: Invitation, config: NodeConfig) -> list[str]:
    """Return the addresses in it that are this node's, which then is the founder's."""
    identity = Path(config.swarm.identity)
    me = Identity.load(identity).peer_id if identity.exists() else None
    return [address for address in invitation.network.bootnodes if address.endswith(f"/p2p/{me}")]


def chain_overrides(invitation: Invitation, config: NodeConfig) -> list[str]:
    """Return the settings of the invitation's chain, as overrides."""
    place = _chain_of(invitation, config)
    plain = ("kind", "chain_id", "contract_block", "round_seconds")
    urls = f"chain.rpc_urls=[{','.join(map(quoted, place.rpc_urls))}]"
    return [urls, f"chain.contract={quoted(place.contract)}", *(f"chain.{key}={getattr(place, key)}" for key in plain)]


def _chain_of(invitation: Invitation, config: NodeConfig) -> ChainConfig:
    """Return the chain's settings: at its own addresses, or through the founder's node where they are his loopback."""
    chain, endpoint, urls = invitation.chain, ChainEndpoint.of(Path(config.chain.directory)), invitation.chain.rpc
    if config.chain.chain_id in (0, chain.id) and config.chain.rpc_urls:
        urls = config.chain.rpc_urls
    elif not urls:
        raise ConfigError(f"the invitation names no address of chain {chain.id}; name one: chain.rpc_urls=[https://…]")
    elif all(map(is_loopback, urls)) and not _own(invitation, config):
        urls = invitation.network.bootnodes or urls
    kind = "embedded" if endpoint is not None and endpoint.chain_id == chain.id else "rpc"
    place = replace(config.chain, kind=kind, rpc_urls=urls, chain_id=chain.id, contract=chain.contract)
    return replace(place, contract_block=chain.block, round_seconds=chain.round_seconds)


def judge_of(config: EvaluatorConfig) -> terms.JudgePart:
    """Return the judge that the config names, by name and content. Raises ModelError."""
    local = config.in_process and config.model != "off"
    return terms.JudgePart(config.model, weights_digest(source_of(config.model, "judge")) if local else "")


def _check_chain(invitation: Invitation, config: NodeConfig, stack: contextlib.ExitStack, ask: Ask | None) -> list[str]:
    """Check whose contract it is, and return the ways in that it names; none while the chain does not answer."""
    contract, founder = invitation.chain.contract, invitation.founder
    coordinator = read_only(_chain_of(invitation, config), stack, visitor if ask is None else lambda _stack: ask)
    try:
        if not coordinator.has_role("OWNER_ROLE", founder):
            owned = f"the contract {contract} does not belong to {founder}, who signed the invitation"
            raise InviteError(f"{owned}; do not join with it")
        listed = coordinator.bootnodes()
    except ChainUnreachableError as error:
        print(f"codezero: the invitation could not be compared with the chain yet: {error}")
        return []
    usable = [address for address in listed if re.fullmatch(terms.BOOTNODE, address)]
    return usable[:16]  # anybody may write there


def _own_addresses(config: NodeConfig, peer: str) -> list[str]:
    """Return where others will find this node. Raises ConfigError without a port, which has to stay the same."""
    if config.swarm.announce:
        return [f"{address}/p2p/{peer}" for address in config.swarm.announce]
    if not config.swarm.port:
        raise ConfigError("swarm.port=0: others need one that stays; give --p2p-port, for example 38331")
    host = ipaddress.ip_address(config.swarm.host)
    shown = own_addresses(host.version) if host.is_unspecified else [str(host)]
    if not shown:
        raise ConfigError("this machine has no address; name one: swarm.announce=[/ip4/ADDRESS/tcp/PORT]")
    if host.is_unspecified and outward_address(host.version) is None:
        print(f"codezero: no default route; others find this node at its interfaces' addresses, {', '.join(shown)}")
    return [f"/ip{host.version}/{address}/tcp/{config.swarm.port}/p2p/{peer}" for address in shown]
