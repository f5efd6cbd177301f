## The standard library's asynchronous HTTP server in one process, with a thread and a listener for
## each core. The kernel distributes the clients (SO_REUSEPORT), and each thread has its own event
## loop.
import std/[asyncdispatch, asynchttpserver, os, strutils]

const text = ("Content-Type", "text/plain")

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

proc run(port: int) {.thread.} =
  let host = getEnv("HOST", "127.0.0.1")
  waitFor newAsyncHttpServer(reusePort = true).serve(Port(port), answer, host)

if paramCount() > 0: echo "asynchttpserver of Nim ", NimVersion
else:
  var threads = newSeq[Thread[int]](parseInt(getEnv("CPUS", "1")))
  for thread in threads.mitems: createThread(thread, run, parseInt(getEnv("PORT")))
  joinThreads(threads)
