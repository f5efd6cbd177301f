// Node's own HTTP server: hello on /, and the JSON API on /bla.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

const MAX_BODY = 1 << 20;
const HELLO = "Hello, World!";
const HELLO_HEADERS = { "Content-Type": "text/plain", "Content-Length": HELLO.length };

// With a content length, a response is one write. Without it, Node would send chunks.
function send(response, status, document) {
  const body = JSON.stringify(document);
  response.writeHead(status, {
    "Content-Type": "application/json",
    "Content-Length": Buffer.byteLength(body),
  });
  response.end(body);
}

const error = (response, status, text) => send(response, status, { error: text });

// A missing content type counts as JSON.
function isJson(type) {
  return type === undefined || type.split(";", 1)[0].trim().toLowerCase() === "application/json";
}

function parseObject(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

function withBody(request, response, answer) {
  const chunks = [];
  let size = 0;
  request.on("data", (chunk) => {
    size += chunk.length;
    if (size <= MAX_BODY) chunks.push(chunk);
  });
  request.on("end", () => {
    if (size > MAX_BODY) return error(response, 413, "Content Too Large");
    const params = parseObject(Buffer.concat(chunks).toString());
    if (params === null) return error(response, 400, "Bad Request");
    answer(params);
  });
}

const routes = {
  "GET /": (request, response) => {
    response.writeHead(200, HELLO_HEADERS);
    response.end(HELLO);
  },
  "GET /bla": (request, response) => {
    if (!isJson(request.headers["content-type"])) return error(response, 406, "Not Acceptable");
    send(response, 200, { results: [1, 2, 3] });
  },
  "POST /bla": (request, response) => {
    if (!isJson(request.headers["content-type"])) return error(response, 406, "Not Acceptable");
    withBody(request, response, (params) => send(response, 200, { name: params.name ?? null }));
  },
};

function pathOf(url) {
  // A client that takes this server for a proxy sends the whole URL.
  if (url.startsWith("http")) url = url.slice(url.indexOf("/", 8));
  const query = url.indexOf("?");
  return query < 0 ? url : url.slice(0, query);
}

function answer(request, response) {
  const { method, url } = request;
  const route = routes[`${method === "HEAD" ? "GET" : method} ${pathOf(url)}`];
  if (route === undefined) return error(response, 404, "Not Found");
  route(request, response);
}

const { TLS_CERT, TLS_KEY } = process.env;
const server = TLS_CERT
  ? https.createServer({ cert: readFileSync(TLS_CERT), key: readFileSync(TLS_KEY) }, answer)
  : http.createServer(answer);
if (TLS_CERT) {
  // Node's own response to a malformed request ends without TLS's close_notify.
  server.on("clientError", (failure, socket) => {
    if (!socket.writable) return socket.destroy();
    socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
  });
}

// A proxy in front must close idle connections first, as Node's documentation advises.
server.keepAliveTimeout = 65_000;
server.listen(Number(process.env.PORT ?? 8080), process.env.HOST);
process.on("SIGTERM", () => process.exit(0));
