"""A server whose work per request is known: --base and --extra are rounds of arithmetic, in two
calls. With --alone there is no server. Then the extra rounds are timed in stretches of so many
requests, and the nanoseconds per request of each stretch are printed."""

import argparse
import asyncio
import os
import time

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!"


def work(rounds):
    x = 1
    for _ in range(rounds):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    return x


def time_alone(options):
    for _ in range(45):
        began = time.thread_time_ns()
        for _ in range(options.alone):
            work(options.extra)
        print((time.thread_time_ns() - began) / options.alone)


class Hello(asyncio.Protocol):
    def __init__(self, options):
        self.options = options
        self.received = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        while b"\r\n\r\n" in self.received:
            _, self.received = self.received.split(b"\r\n\r\n", 1)
            if self.options.base:
                work(self.options.base)
            if self.options.extra:
                work(self.options.extra)
            self.transport.write(RESPONSE)


async def serve(options):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Hello(options), "127.0.0.1", int(os.environ["PORT"]))
    await server.serve_forever()


parser = argparse.ArgumentParser()
for name in ["--base", "--extra", "--alone"]:
    parser.add_argument(name, type=int, default=0)
options = parser.parse_args()
if options.alone:
    time_alone(options)
else:
    asyncio.run(serve(options))
