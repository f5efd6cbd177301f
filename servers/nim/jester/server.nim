## Jester, with its small language for routes, on httpbeast or the standard library's server.
import std/[os, strutils]
import jester

const engine = when defined(useStdLib): "asynchttpserver" else: "httpbeast"

router hello:
  get "/":
    resp Http200, "Hello, World!", "text/plain"

proc main =
  let settings = newSettings(
    port = Port(parseInt(getEnv("PORT"))),
    bindAddr = getEnv("HOST", "127.0.0.1"),
    numThreads = parseInt(getEnv("CPUS", "1")),
  )
  var server = initJester(hello, settings)
  server.serve()

if paramCount() > 0: echo "on ", engine, ", Nim ", NimVersion
else: main()
