// Express: hello on /, and the JSON API on /bla.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import express from "express";

const app = express();
// By default, each response has a header that names Express, and an ETag, a hash of its body.
app.disable("x-powered-by");
app.disable("etag");

app.get("/", (req, res) => {
  res.type("text/plain").send("Hello, World!");
});

const error = (res, status, text) => res.status(status).json({ error: text });

// A missing content type counts as JSON.
function acceptJson(req, res, next) {
  const type = req.headers["content-type"] ?? "application/json";
  if (type.split(";", 1)[0].trim().toLowerCase() === "application/json") return next();
  error(res, 406, "Not Acceptable");
}

// The parser would accept an empty body as an empty object.
function refuseEmpty(req, res, body) {
  if (body.length === 0) throw Object.assign(new Error("Bad Request"), { status: 400 });
}

const parseJson = express.json({ type: () => true, verify: refuseEmpty });

function requireObject(req, res, next) {
  const { body } = req;
  if (body !== null && typeof body === "object" && !Array.isArray(body)) return next();
  error(res, 400, "Bad Request");
}

app.route("/bla")
  .all(acceptJson)
  .get((req, res) => {
    res.json({ results: [1, 2, 3] });
  })
  .post(parseJson, requireObject, (req, res) => {
    res.json({ name: req.body.name ?? null });
  });

app.use((req, res) => error(res, 404, "Not Found"));
// The four parameters make this an error handler. Express's own handler responds in HTML.
app.use((failure, req, res, next) => error(res, failure.status ?? 500, failure.message));

const { TLS_CERT, TLS_KEY } = process.env;
const server = TLS_CERT
  ? https.createServer({ cert: readFileSync(TLS_CERT), key: readFileSync(TLS_KEY) }, app)
  : http.createServer(app);
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
