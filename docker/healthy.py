"""Is the node of this container healthy? Asks its page's /healthz: exit code 0 for yes, 1 with one line for no."""

import os
import sys
import urllib.error
import urllib.request

SECONDS = 8.0


def main() -> int:
    address = f"http://127.0.0.1:{os.environ.get('PAGE_PORT', '3000')}/healthz"
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            print(answer.read(2000).decode(errors="replace"))
            return 0
    except urllib.error.HTTPError as error:  # 503 says in its body what is wrong
        print(error.read(2000).decode(errors="replace"))
    except OSError as error:
        print(f"{address} does not answer: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
