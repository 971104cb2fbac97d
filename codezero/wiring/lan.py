"""`codezero swarm join --lan`: the code of the swarm that is announced on the local network."""

import contextlib

from codezero.chain.invitation import JoinCode, decode_code
from codezero.errors import InviteError
from codezero.swarm.lan import listen

LAN_SECONDS = 6.0


def announced_code() -> str:
    """The code of the one swarm that is announced on the local network.

    Raises InviteError that names them all where there is any other number.
    """
    print(f"codezero: listening for swarms on the local network, up to {LAN_SECONDS:g} s", flush=True)
    swarms = dict[str, JoinCode]()
    for text in listen(LAN_SECONDS):
        with contextlib.suppress(InviteError):  # anybody may announce anything
            swarms[text] = decode_code(text)
    if not swarms:
        raise InviteError(
            "no swarm is announced on the local network; its founder runs `codezero swarm create --lan`. Where "
            "multicast does not pass, join by the code"
        )
    if len(swarms) > 1:
        known = "".join(f"\n  {swarm.name}: codezero swarm join {text}" for text, swarm in swarms.items())
        raise InviteError(f"{len(swarms)} swarms are announced on the local network; ask your founder which:{known}")
    [(text, swarm)] = swarms.items()
    print(f"codezero: joining {swarm.name} at {swarm.addresses[0]}", flush=True)
    return text
