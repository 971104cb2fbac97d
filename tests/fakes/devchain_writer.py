"""A process that sends signed transactions one after the other: `{"port": .., "raws": [..]}` on stdin.

It prints the hash of each as soon as its receipt was returned, and ends quietly when the chain is gone.
"""

import http.client
import json
import sys
from typing import Any


def main() -> None:
    work = json.load(sys.stdin)
    connection = http.client.HTTPConnection("127.0.0.1", work["port"], timeout=120)

    def ask(method: str, *params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection.request("POST", "/", body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["result"]

    try:
        for raw in work["raws"]:
            tx_hash = ask("eth_sendRawTransaction", raw)
            if ask("eth_getTransactionReceipt", tx_hash)["status"] == "0x1":
                print(tx_hash, flush=True)
    except (OSError, http.client.HTTPException, ValueError):
        pass


if __name__ == "__main__":
    main()
