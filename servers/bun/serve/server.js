// Bun's own server: hello on /, and the JSON API on /bla. With STATIC, hello needs no handler.
const hello = () => new Response("Hello, World!");
const error = (status, text) => Response.json({ error: text }, { status });

// A missing content type counts as JSON.
function isJson(request) {
  const type = request.headers.get("content-type");
  return type === null || type.split(";", 1)[0].trim().toLowerCase() === "application/json";
}

function list(request) {
  if (!isJson(request)) return error(406, "Not Acceptable");
  return Response.json({ results: [1, 2, 3] });
}

async function name(request) {
  if (!isJson(request)) return error(406, "Not Acceptable");
  const params = await request.json().catch(() => null);
  if (params === null || typeof params !== "object" || Array.isArray(params)) {
    return error(400, "Bad Request");
  }
  return Response.json({ name: params.name ?? null });
}

Bun.serve({
  hostname: process.env.HOST,
  port: Number(process.env.PORT ?? 8080),
  // Each process of the cluster has its own listener. The kernel distributes the connections.
  reusePort: process.env.WORKER !== undefined,
  maxRequestBodySize: 1 << 20,
  routes: {
    "/": { GET: process.env.STATIC ? hello() : hello },
    "/bla": { GET: list, POST: name },
  },
  fetch: () => error(404, "Not Found"),
});

process.on("SIGTERM", () => process.exit(0));
