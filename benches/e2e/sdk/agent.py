"""The two ends of the comparison in Python, with the SDK as it is published.

`agent.py provider SOCKET CAPABILITY SCHEMAS RESULT` serves; `agent.py caller SOCKET CAPABILITY PARAMS` does a round of calls
for each line on its standard input. SCHEMAS, RESULT and PARAMS are JSON. What is said on the lines is in `src/role.rs` and
`src/load.rs`.
"""

import asyncio
import json
import os
import sys
import threading
import time

from capd import Agent, AsyncClient

CALLS_MAX = 1024


def say(message):
    print(json.dumps(message), flush=True)


def ready():
    say({"pid": os.getpid(), "address": ""})


def provide(socket, capability, schemas, result):
    name, version = capability.split(":")
    agent = Agent(socket, concurrency=CALLS_MAX)

    async def answer(params):
        return result

    input_schema, output_schema = schemas
    agent.add(name, answer, version=version, idempotent=True, input_schema=input_schema, output_schema=output_schema)
    agent.start()
    if not agent.wait_ready(40):
        sys.exit("the sidecar does not take the declaration")
    ready()
    sys.stdin.read()


async def round_of(client, capability, params, load):
    """`in_flight` callers, each of which calls again once it has its answer."""
    begins = time.perf_counter() + load["ms"] / 5 / 1000
    ends = begins + load["ms"] / 1000
    times, counted = [], {"all": 0, "last": ends}

    async def call_again():
        while True:
            made = time.perf_counter()
            result = await client.call(capability, params)
            ended = time.perf_counter()
            if "days" not in result:
                raise AssertionError(f"not what the provider gave: {result}")
            counted["all"] += 1
            if ended >= ends and times:
                return
            if ended >= begins:
                counted["last"] = max(counted["last"], ended)
                times.append(ended - made)

    await asyncio.gather(*(call_again() for _ in range(load["in_flight"])))
    times.sort()
    at = lambda quantile: times[min(len(times) - 1, int(len(times) * quantile))] * 1e6
    return {"calls": len(times), "all": counted["all"], "seconds": counted["last"] - begins, "p50_us": at(0.5), "p99_us": at(0.99)}


async def call(socket, capability, params):
    lines = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    async with AsyncClient(socket) as client:
        deadline = time.monotonic() + 40
        while True:
            try:
                await client.call(capability, params)
                break
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
        ready()
        while (line := await lines.get()) is not None:
            say(await round_of(client, capability, params, json.loads(line)))


if __name__ == "__main__":
    role, socket, capability, *given = sys.argv[1:]
    given = [json.loads(text) for text in given]
    if role == "provider":
        provide(socket, capability, *given)
    else:
        asyncio.run(call(socket, capability, *given))
