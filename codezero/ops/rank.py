"""A further rank of a node, as `ranks.Crew` starts it: computes what rank 0 asks for, writes nothing, ends with it."""

import os
import socket
import sys

from codezero.models.ranks import Channel, serve
from codezero.system.signals import end_with_parent


def main() -> None:
    end_with_parent()  # before what takes seconds to load
    from codezero.wiring.rank import Rank

    with socket.socket(fileno=int(sys.argv[1])) as end:
        serve(Channel(end), Rank().handlers)
    os._exit(0)  # rank 0 is gone, and libraries would wait for it


if __name__ == "__main__":
    main()
