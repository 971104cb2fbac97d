"""A TCP proxy, as a program, that adds a delay each way and loses every connection after some random seconds.

Arguments: host and port to listen at, host and port to lead to, the delay in seconds, and the most that a connection
lasts. Prints how many it has lost, as JSON, and ends with its input."""

import asyncio
import contextlib
import json
import random
import sys

LEAST_SECONDS = 5.0
lost = 0


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """One direction, until its end."""
    clock = asyncio.get_running_loop().time
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

    async def send() -> None:
        while True:
            due, piece = await waiting.get()
            await asyncio.sleep(due - clock())
            if not piece:
                return
            writer.write(piece)
            await writer.drain()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        while piece := await reader.read(1 << 16):
            await waiting.put((clock() + delay, piece))
        await waiting.put((clock() + delay, b""))


async def main(host: str, port: int, target: str, target_port: int, delay: float, longest: float) -> None:
    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        global lost
        ends = [writer]
        try:
            async with asyncio.timeout(random.uniform(LEAST_SECONDS, longest)):
                far, back = await asyncio.open_connection(target, target_port)
                ends.append(back)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(carry(reader, back, delay))
                    tasks.create_task(carry(far, writer, delay))
        except* TimeoutError:
            lost += 1
            print(json.dumps({"lost": lost}), flush=True)
        except* OSError:
            pass
        finally:
            for end in ends:
                end.transport.abort()

    server = await asyncio.start_server(join, host, port)
    print(json.dumps({"lost": lost}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    here, port, there, there_port, *seconds = sys.argv[1:]
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(here, int(port), there, int(there_port), *map(float, seconds)))
