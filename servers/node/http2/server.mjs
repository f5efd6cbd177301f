// Node's own HTTP/2 server with its stream interface, which does not speak HTTP/1.1. With
// allowHTTP1, Node would also pass the streams of HTTP/2 to the request handler.
import { readFileSync } from "node:fs";
import { createSecureServer, createServer } from "node:http2";

const HELLO = "Hello, World!";
const TEXT = { ":status": 200, "content-type": "text/plain", "content-length": HELLO.length };

function isRead(method) {
  return method === "GET" || method === "HEAD";
}

const { TLS_CERT, TLS_KEY } = process.env;
const server = TLS_CERT
  ? createSecureServer({ cert: readFileSync(TLS_CERT), key: readFileSync(TLS_KEY) })
  : createServer();

server.on("stream", (stream, headers) => {
  // A client that resets its stream must not harm other clients.
  stream.on("error", () => {});
  if (headers[":path"] === "/" && isRead(headers[":method"])) {
    stream.respond(TEXT);
    stream.end(HELLO);
  } else {
    stream.respond({ ":status": 404 }, { endStream: true });
  }
});
server.on("sessionError", () => {});

server.listen(Number(process.env.PORT ?? 8080), process.env.HOST);
process.on("SIGTERM", () => process.exit(0));
