"""HTTP/1.1 on edge-triggered epoll, in one thread. Requests are parsed as RFC 9112 requires.

Edge-triggered epoll reports arriving bytes only once. Each socket is therefore read until it has
no more bytes. Bytes that could not be written wait for the next event.
"""
import os, re, select, signal, socket, sys
from email.utils import formatdate
from functools import lru_cache
from time import time

TOKEN = rb"([!#-'*+.^-z|~\-A-Z0-9]+)"
LINE = re.compile(TOKEN + rb" (\S+) HTTP/1\.(\d)")
FIELD = re.compile(TOKEN + rb":[ \t]*([^\r\n]*?)[ \t]*")
CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})(?:[ \t]*;[^\r\n]*)?\r\n")
PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
           413: "Content Too Large", 501: "Not Implemented"}


class Refused(Exception):
    """A request that gets a response with this status. Its connection is then closed."""


@lru_cache(64)  # `now` changes every second, and so does `Date`
def answer(status, connection, now, head=False):
    body = "Hello, World!" if status == 200 else PHRASES[status]
    fields = f"Connection: {connection}\r\n" if connection else ""
    fields += "Allow: GET, HEAD\r\n" if status == 405 else ""
    return (f"HTTP/1.1 {status} {PHRASES[status]}\r\nServer: epoll\r\nContent-Type: text/plain\r\n"
            f"Date: {formatdate(now, usegmt=True)}\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
            f"{'' if head else body}").encode()


def parse(head):
    line, *rest = bytes(head).split(b"\r\n")
    if not (match := LINE.fullmatch(line)):
        raise Refused(400)
    fields = {}
    for field in map(FIELD.fullmatch, rest):  # no space before the colon, no folded line: section 5
        if not field or field[1].lower() in fields.keys() & {b"host", b"content-length"}:
            raise Refused(400)
        name = field[1].lower()
        fields[name] = fields[name] + b", " + field[2] if name in fields else field[2]
    if match[3] != b"0" and b"host" not in fields:
        raise Refused(400)
    return match[1], match[2], match[3] == b"0", fields


def chunks_end(buf, at):
    """Returns the end of a chunked body: a position past the buffer until the body is complete."""
    while chunk := CHUNK.match(buf, at):
        if int(chunk[1], 16) == 0:  # the trailer section follows, up to a blank line
            last = buf.find(b"\r\n\r\n", chunk.end() - 2)
            return last + 4 if last >= 0 else len(buf) + 1
        at = chunk.end() + int(chunk[1], 16) + 2
        if len(buf) >= at and buf[at - 2:at] != b"\r\n":
            raise Refused(400)
    if b"\r\n" in buf[at:]:
        raise Refused(400)
    return len(buf) + 1


class Connection:
    def __init__(self, sock):
        self.sock, self.buf, self.out, self.done, self.told = sock, bytearray(), b"", False, False

    def take(self):
        """Responds to the first complete request, if any. Returns whether more may follow."""
        while self.buf.startswith(b"\r\n"):  # empty lines before a request: section 2.2
            del self.buf[:2]
        if (end := self.buf.find(b"\r\n\r\n") + 4) < 4:
            return False
        method, target, old, fields = parse(self.buf[:end - 4])
        coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
        if coding and (length or old) or length and not re.fullmatch(rb"\d{1,9}", length):
            raise Refused(400)
        if coding and coding.lower() != b"chunked":
            raise Refused(501)
        end = chunks_end(self.buf, end) if coding else end + int(length or 0)
        if end > len(self.buf):
            if fields.get(b"expect", b"").lower() == b"100-continue" and not self.told:
                self.told, self.out = True, self.out + b"HTTP/1.1 100 Continue\r\n\r\n"
            return False
        del self.buf[:end]
        self.told = False
        options = re.split(rb"[ \t]*,[ \t]*", fields.get(b"connection", b"").lower())
        self.done = b"close" in options or old and b"keep-alive" not in options
        path = target.split(b"?")[0]
        if not path.startswith(b"/"):  # the absolute form: section 3.2.2
            path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
        status = 404 if path != b"/" else 200 if method in (b"GET", b"HEAD") else 405
        connection = "close" if self.done else "keep-alive" if old else ""
        self.out += answer(status, connection, int(time()), method == b"HEAD")
        return not self.done

    def ready(self):
        """Responds to all requests, and sends. Returns whether the connection stays open."""
        try:
            while not self.done and (data := self.sock.recv(65536)):
                self.buf += data
                while self.take():
                    pass
                if len(self.buf) > 1 << 20:
                    raise Refused(413)
            self.done = True  # closed by the client, or to be closed by us
        except BlockingIOError:
            pass
        except Refused as refused:
            self.out, self.done = self.out + answer(refused.args[0], "close", int(time())), True
        try:
            while self.out:
                self.out = self.out[self.sock.send(self.out):]
        except BlockingIOError:
            return True
        return not self.done


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
listener = socket.create_server((os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])), backlog=4096)
listener.setblocking(False)
poll, connections = select.epoll(), {}
poll.register(listener, select.EPOLLIN)
while True:
    for fd, _ in poll.poll():
        try:
            if fd != listener.fileno():
                alive = connections[fd].ready()
            else:
                sock, alive = listener.accept()[0], True
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[sock.fileno()] = Connection(sock)
                poll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        except OSError:
            alive = fd == listener.fileno()
        if not alive:
            connections.pop(fd).sock.close()  # closing also removes it from the epoll set
