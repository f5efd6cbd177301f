// Fastify: hello on /, and the JSON API on /bla. Its serializers are built from the schemas.
import Fastify from "fastify";

const app = Fastify({ logger: false, forceCloseConnections: true });

app.setErrorHandler((error, request, reply) => {
  reply.code(error.statusCode ?? 500).send({ error: error.message });
});

app.get("/", (request, reply) => {
  reply.type("text/plain").send("Hello, World!");
});

app.register(async (api) => {
  // Fastify itself answers 415 and only looks at bodies; an absent content type is taken for JSON.
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

await app.listen({ port: Number(process.env.PORT ?? 8080), host: "0.0.0.0" });
process.on("SIGTERM", () => app.close().then(() => process.exit(0)));
