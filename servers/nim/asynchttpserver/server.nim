## The standard library's asynchronous HTTP server, in one thread.
import std/[asyncdispatch, asynchttpserver, os, strutils]

const
  text = ("Content-Type", "text/plain")
  memory =
    when defined(gcOrc): "orc"
    elif defined(gcMarkAndSweep): "markAndSweep"
    elif defined(boehmgc): "boehm"
    else: "refc"

proc answer(request: Request) {.async, gcsafe.} =
  if request.url.path != "/":
    await request.respond(Http404, "Not Found", newHttpHeaders([text]))
    return
  case request.reqMethod
  of HttpGet:
    await request.respond(Http200, "Hello, World!", newHttpHeaders([text]))
  of HttpHead:
    await request.respond(Http200, "", newHttpHeaders([text, ("Content-Length", "13")]))
  else:
    let headers = newHttpHeaders([text, ("Allow", "GET, HEAD")])
    await request.respond(Http405, "Method Not Allowed", headers)

if paramCount() > 0: echo "asynchttpserver of Nim ", NimVersion, ", gc ", memory
else:
  let (host, port) = (getEnv("HOST", "127.0.0.1"), Port(parseInt(getEnv("PORT"))))
  waitFor newAsyncHttpServer().serve(port, answer, host)
