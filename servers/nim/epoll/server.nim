## One thread with edge-triggered epoll, and no library above the system calls. The kernel reports
## arriving bytes only once, so they are read until there are no more.
import std/[epoll, os, posix, strutils]
import http

type
  State = enum Open, Leaving, Draining
  Connection = object
    partial: string  ## an incomplete request
    pending: string  ## responses that the kernel had no room for
    skip: int        ## bytes of an ignored body that are still to come
    state: State     ## Draining: all is sent, and further input is dropped

const Edge = uint32(EPOLLIN or EPOLLOUT or EPOLLRDHUP) or (1u32 shl 31)  # 1 << 31 is EPOLLET
let nonblocking {.importc: "SOCK_NONBLOCK", header: "<sys/socket.h>".}: cint

var
  connections: seq[Connection]  # by descriptor
  buffer: array[headLimit, char]
  reply: string

proc listen(port: int): SocketHandle =
  var yes = 1.cint
  var address = Sockaddr_in(sin_family: TSa_Family(AF_INET), sin_port: htons(uint16(port)),
                            sin_addr: InAddr(s_addr: inet_addr(getEnv("HOST").cstring)))
  result = socket(AF_INET, SOCK_STREAM or nonblocking, 0)
  for (level, option) in [(SOL_SOCKET, SO_REUSEADDR), (cint IPPROTO_TCP, TCP_NODELAY)]:
    discard setsockopt(result, level, option, addr yes, SockLen(sizeof yes))
  if bindSocket(result, cast[ptr SockAddr](addr address), SockLen(sizeof address)) != 0 or
      posix.listen(result, 1024) != 0: raiseOSError(osLastError())

proc answer(c: var Connection, text: Chars, n: int) =
  ## Appends the responses to the requests in `n` bytes to the reply. Keeps an incomplete request.
  var at = 0
  while at < n and c.state == Open:
    let skipped = min(c.skip, n - at)
    c.skip -= skipped
    at += skipped
    let request = if at < n: parse(cast[Chars](addr text[at]), n - at) else: Request()
    if request.head == 0: break
    reply.add answers[request.keep][request.status]
    at += request.head
    c.skip = request.body
    if not request.keep: c.state = Leaving
  if c.state == Open and at < n:
    c.partial = newString(n - at)
    copyMem(addr c.partial[0], addr text[at], n - at)
  elif c.partial.len > 0: c.partial.setLen 0

proc send(c: var Connection, fd: SocketHandle, text: var string): bool =
  ## Sends what the kernel has room for and keeps the rest. Returns false if the connection broke.
  let sent = if text.len == 0: 0 else: posix.send(fd, addr text[0], text.len, MSG_NOSIGNAL)
  if sent < 0 and errno != EAGAIN: return false
  if sent < text.len: c.pending = text[max(sent, 0) .. ^1]
  elif c.pending.len > 0: c.pending.setLen 0
  if c.state == Leaving and c.pending.len == 0:
    c.state = Draining  # closing while the client still sends could destroy the response
    discard shutdown(fd, SHUT_WR)
  true

proc serve(c: var Connection, fd: SocketHandle, hungUp: bool): bool =
  ## Reads and responds until there is no more input. Returns false if the connection has ended.
  var pending = move c.pending
  if not c.send(fd, pending): return false
  while c.pending.len == 0:
    let had = c.partial.len
    if had > 0: copyMem(addr buffer[0], addr c.partial[0], had)
    let got = recv(fd, addr buffer[had], headLimit - had, 0)
    if got <= 0: return got < 0 and (errno == EAGAIN or errno == EINTR)
    if c.state == Draining: continue
    reply.setLen 0
    c.answer(cast[Chars](addr buffer), had + got)
    if not c.send(fd, reply): return false
    # After a short read, no bytes are left. A hang-up is not reported again, so it is read now.
    if got < headLimit - had and not hungUp: return true
  true

proc main =
  let listener = listen(parseInt(getEnv("PORT")))
  let queue = epoll_create1(0)
  var events: array[64, EpollEvent]
  proc watch(fd: SocketHandle) =
    var event = EpollEvent(events: Edge, data: EpollData(u64: uint64(fd)))
    discard epoll_ctl(queue, EPOLL_CTL_ADD, fd.cint, addr event)
  watch(listener)
  while true:
    for i in 0 ..< epoll_wait(queue, addr events[0], 64, -1):
      let fd = SocketHandle(events[i].data.u64)
      if fd == listener:
        while (let client = accept4(listener, nil, nil, nonblocking); client.int >= 0):
          if connections.len <= client.int: connections.setLen(client.int + 64)
          connections[client.int] = Connection()
          watch(client)
      elif not connections[fd.int].serve(fd, (events[i].events and EPOLLRDHUP.uint32) != 0):
        discard close(fd)

if paramCount() > 0: echo "epoll of Nim ", NimVersion
else: main()
