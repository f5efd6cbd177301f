## Blocking sockets in one thread, with a connection for each request: accept, receive, send, close.
##
## The response has `Connection: close`, as HTTP permits (RFC 9112, section 9.6). Requests that
## arrive together with the first one get responses too, so clients may pipeline.
import std/[nativesockets, net, os, posix, strutils]
import http

var
  buffer: array[headLimit, char]
  reply: string
let deferAccept {.importc: "TCP_DEFER_ACCEPT", header: "<netinet/tcp.h>".}: cint

proc answer(n: int): tuple[asked: int, more: bool] =
  ## Makes the reply to the complete requests in `n` bytes. Returns their number, and whether more
  ## bytes may follow.
  reply.setLen 0
  var at, last = 0
  while at < n:
    let request = parse(cast[Chars](addr buffer[at]), n - at)
    if request.head == 0: break
    inc result.asked
    at += request.head + request.body
    # Only the last response announces the end. The loop does not know yet which one is last.
    last = reply.len
    reply.add answers[request.keep][request.status]
    if not request.keep: break
  result.more = at != n or n == headLimit
  if result.asked == 0 or reply.find("Connection: close", last) >= 0: return
  reply.insert("Connection: close\r\n", reply.find("Content-Length", last))

proc serve(client: SocketHandle) =
  var
    n = 0
    (asked, more) = (0, false)
  while asked == 0:
    let got = recv(client, addr buffer[n], headLimit - n, 0)
    if got <= 0: return  # the client is gone, or keeps others waiting too long
    n += got
    (asked, more) = answer(n)
  discard send(client, addr reply[0], reply.len, MSG_NOSIGNAL)
  if not more: return
  # Closing while the client still sends could destroy the response, so further input is dropped.
  discard shutdown(client, SHUT_WR)
  while recv(client, addr buffer[0], headLimit, 0) > 0: discard

proc main =
  let listener = newSocket(buffered = false)
  listener.setSockOpt(OptReuseAddr, true)
  # A client is accepted only once its request has arrived, so an idle client blocks nobody.
  listener.getFd.setSockOptInt(posix.IPPROTO_TCP.int, deferAccept, 3600)
  listener.bindAddr(Port(parseInt(getEnv("PORT"))), getEnv("HOST", "127.0.0.1"))
  listener.listen(1024)
  let patience = Timeval(tv_sec: posix.Time(1))
  while true:
    let (client, _) = accept(listener.getFd, inheritable = false)
    if client == osInvalidSocket: continue
    for option in [SO_RCVTIMEO, SO_SNDTIMEO]:
      discard setsockopt(client, SOL_SOCKET, option, unsafeAddr patience, SockLen(sizeof patience))
    serve(client)
    close(client)

if paramCount() > 0: echo "nativesockets of Nim ", NimVersion
else: main()
