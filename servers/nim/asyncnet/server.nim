## The standard library's asynchronous sockets, with one thread and an async procedure for each
## connection. The procedure reads as if it blocked.
import std/[asyncdispatch, asyncnet, nativesockets, os, posix, strutils]
import http

proc serve(client: AsyncSocket) {.async.} =
  var
    text, reply: string  # input without a response so far, and responses to send
    skip = 0             # bytes of an ignored body that are still to come
    keep = true
  try:
    while keep:
      let more = await client.recv(headLimit - text.len)
      if more.len == 0: break
      if text.len == 0: text = more
      else: text.add more
      reply.setLen 0
      var at = 0
      while at < text.len and keep:
        let skipped = min(skip, text.len - at)
        skip -= skipped
        at += skipped
        if at == text.len: break
        let request = parse(cast[Chars](addr text[at]), text.len - at)
        if request.head == 0: break
        reply.add answers[request.keep][request.status]
        at += request.head
        skip = request.body
        keep = request.keep
      text = if at < text.len: text[at .. ^1] else: ""
      if reply.len > 0: await client.send(reply)
    # Closing while the client still sends could destroy the response, so further input is dropped.
    if not keep:
      discard client.getFd.shutdown(SHUT_WR)
      while (await client.recv(headLimit)).len > 0: discard
  except OSError: discard  # the client disconnected
  client.close()

proc main {.async.} =
  let listener = newAsyncSocket(buffered = false)
  listener.setSockOpt(OptReuseAddr, true)
  listener.setSockOpt(OptNoDelay, true, level = posix.IPPROTO_TCP)
  listener.bindAddr(Port(parseInt(getEnv("PORT"))), getEnv("HOST", "127.0.0.1"))
  listener.listen(1024)
  while true:
    try: asyncCheck serve(await listener.accept())
    except OSError: await sleepAsync(10)  # no descriptor is free until a connection closes

if paramCount() > 0: echo "asyncnet of Nim ", NimVersion
else: waitFor main()
