"""The process that pushes one folder to the hub: `python -m codezero.solver.hub_process`, the order as JSON on stdin.

It is given its token and asks for no other: what the hub's own tools saved on this machine is neither read nor changed.
It says one line of JSON: {"commit": ADDRESS} or {"problem": WHY}.
"""

import json
import sys

import msgspec

from codezero.system.signals import end_with_parent


class Order(msgspec.Struct, frozen=True):
    """What to push, and where to."""

    repository: str
    private: bool
    token: str
    folder: str
    message: str


def push(order: Order) -> str:
    """The commit's address. Raises what huggingface_hub raises, ValueError for a repository that is public."""
    from huggingface_hub import HfApi

    api = HfApi(token=order.token)
    api.create_repo(order.repository, private=order.private, exist_ok=True)
    if order.private and not api.model_info(order.repository).private:
        raise ValueError(f"{order.repository} is public, and hub.private=true; set hub.private=false or choose another")
    done = api.upload_folder(repo_id=order.repository, folder_path=order.folder, commit_message=order.message)
    return str(done.commit_url)


def main() -> int:
    end_with_parent()
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    from huggingface_hub.errors import HfHubHTTPError

    try:
        told = {"commit": push(order)}
    except (HfHubHTTPError, OSError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = {"problem": " ".join(lines)[:400] or type(error).__name__}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
