// Fastify: hello on /, and the JSON API on /bla. Its serializers are built from the schemas.
import { readFileSync } from "node:fs";
import Fastify from "fastify";

const { TLS_CERT, TLS_KEY } = process.env;
const tls = TLS_CERT && {
  http2: true,
  https: { allowHTTP1: true, cert: readFileSync(TLS_CERT), key: readFileSync(TLS_KEY) },
};
const app = Fastify({ logger: false, ...tls });

app.setErrorHandler((error, request, reply) => {
  reply.code(error.statusCode ?? 500).send({ error: error.message });
});

app.get("/", (request, reply) => {
  reply.type("text/plain").send("Hello, World!");
});

app.register(async (api) => {
  // Fastify itself would send 415, and only for requests with a body. A missing content type counts
  // as JSON.
  api.addHook("onRequest", (request, reply, done) => {
    const type = (request.headers["content-type"] ??= "application/json");
    if (type.split(";", 1)[0].trim().toLowerCase() === "application/json") return done();
    reply.code(406).send({ error: "Not Acceptable" });
  });

  const results = { type: "array", items: { type: "integer" } };
  const listed = { response: { 200: { type: "object", properties: { results } } } };
  api.get("/bla", { schema: listed }, (request, reply) => {
    reply.send({ results: [1, 2, 3] });
  });

  const named = {
    body: { type: "object" },
    response: { 200: { type: "object", properties: { name: {} } } },
  };
  api.post("/bla", { schema: named }, (request, reply) => {
    reply.send({ name: request.body.name ?? null });
  });
});

await app.listen({ port: Number(process.env.PORT ?? 8080), host: process.env.HOST });
// Fastify's own close would wait for HTTP/1.1 connections over TLS.
process.on("SIGTERM", () => process.exit(0));
