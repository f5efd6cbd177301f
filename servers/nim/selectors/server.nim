## One thread with the standard library's selectors, which are level-triggered. A socket is reported
## for as long as there is something to read. It is watched for writing only while a response waits
## for room.
import std/[nativesockets, net, os, posix, selectors, strutils]
import http

type
  State = enum Open, Leaving, Draining
  Connection = object
    partial: string  ## an incomplete request
    pending: string  ## responses that the kernel had no room for
    skip: int        ## bytes of an ignored body that are still to come
    state: State     ## Draining: all is sent, and further input is dropped

var
  buffer: array[headLimit, char]
  reply: string

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
  if c.state == Leaving and c.pending.len == 0:
    c.state = Draining  # closing while the client still sends could destroy the response
    discard shutdown(fd, SHUT_WR)
  true

proc receive(c: var Connection, fd: SocketHandle): bool =
  ## Reads once and responds. Returns false if the connection has ended.
  let had = c.partial.len
  if had > 0: copyMem(addr buffer[0], addr c.partial[0], had)
  let got = recv(fd, addr buffer[had], headLimit - had, 0)
  if got <= 0: return got < 0 and (errno == EAGAIN or errno == EINTR)
  if c.state == Draining: return true
  reply.setLen 0
  c.answer(cast[Chars](addr buffer), had + got)
  c.send(fd, reply)

proc main =
  let listener = newSocket(buffered = false)
  listener.setSockOpt(OptReuseAddr, true)
  listener.setSockOpt(OptNoDelay, true, level = posix.IPPROTO_TCP)
  listener.bindAddr(Port(parseInt(getEnv("PORT"))), getEnv("HOST", "127.0.0.1"))
  listener.listen(1024)
  listener.getFd.setBlocking(false)
  let selector = newSelector[Connection]()
  selector.registerHandle(listener.getFd, {Event.Read}, Connection())
  while true:
    for ready in selector.select(-1):
      let fd = SocketHandle(ready.fd)
      if fd == listener.getFd:
        let (client, _) = accept(fd, inheritable = false)
        if client == osInvalidSocket: continue  # gone, or no descriptor is free: reported again
        client.setBlocking(false)
        selector.registerHandle(client, {Event.Read}, Connection())
        continue
      var alive = true
      selector.withData(ready.fd, c):
        if c.pending.len > 0:
          var pending = move c.pending
          alive = c[].send(fd, pending)
          if c.pending.len == 0: selector.updateHandle(fd, {Event.Read})
        else:
          alive = c[].receive(fd)
          if c.pending.len > 0: selector.updateHandle(fd, {Event.Write})
      if not alive:
        selector.unregister(fd)
        close(fd)

if paramCount() > 0: echo "selectors of Nim ", NimVersion
else: main()
