// Node's own HTTP/2 server, by its stream interface. Without TLS it speaks no HTTP/1.1.
import { createServer } from "node:http2";

const HELLO = "Hello, World!";
const TEXT = { ":status": 200, "content-type": "text/plain", "content-length": HELLO.length };

function isRead(method) {
  return method === "GET" || method === "HEAD";
}

const server = createServer();

server.on("stream", (stream, headers) => {
  // A client that resets its stream harms no other.
  stream.on("error", () => {});
  if (headers[":path"] === "/" && isRead(headers[":method"])) {
    stream.respond(TEXT);
    stream.end(HELLO);
  } else {
    stream.respond({ ":status": 404 }, { endStream: true });
  }
});
server.on("sessionError", () => {});

server.listen(Number(process.env.PORT ?? 8080));
process.on("SIGTERM", () => process.exit(0));
