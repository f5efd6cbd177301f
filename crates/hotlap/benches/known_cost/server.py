"""A server whose work per request is known: --base and --extra are rounds of arithmetic, in two
calls. With --alone N, the program does not serve, but times the extra rounds in stretches of N
requests, and prints the nanoseconds per request of each stretch. With --timed FILE, the server
times the extra rounds of one request in 16. At its end, the server appends their mean in
nanoseconds to the file."""

import argparse
import asyncio
import os
import signal
import statistics
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


def mean(times):
    """Returns the mean of times up to three medians. During longer times, something else ran."""
    most = 3 * statistics.median(times)
    return statistics.mean(time for time in times if time <= most)


class Timer:
    def __init__(self):
        self.requests, self.times = 0, []

    def work(self, rounds):
        self.requests += 1
        if self.requests % 16:
            return work(rounds)
        began = time.perf_counter_ns()
        work(rounds)
        self.times.append(time.perf_counter_ns() - began)

    def append(self, file):
        def clock():
            began = time.perf_counter_ns()
            return time.perf_counter_ns() - began

        if self.times:
            with open(file, "a") as out:
                print(mean(self.times) - mean([clock() for _ in range(999)]), file=out)


class Hello(asyncio.Protocol):
    def __init__(self, options, extra_work):
        self.options, self.extra_work = options, extra_work
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
                self.extra_work(self.options.extra)
            self.transport.write(RESPONSE)


async def serve(options):
    loop = asyncio.get_running_loop()
    timer, over = Timer(), asyncio.Event()
    extra_work = timer.work if options.timed else work
    server = await loop.create_server(
        lambda: Hello(options, extra_work), "127.0.0.1", int(os.environ["PORT"])
    )
    loop.add_signal_handler(signal.SIGTERM, over.set)
    async with server:
        await over.wait()
    if options.timed:
        timer.append(options.timed)
        os._exit(0)


parser = argparse.ArgumentParser()
for name in ["--base", "--extra", "--alone"]:
    parser.add_argument(name, type=int, default=0)
parser.add_argument("--timed")
options = parser.parse_args()
if options.alone:
    time_alone(options)
else:
    asyncio.run(serve(options))
