// Deno's own server, as `deno serve` runs it: hello on /, and the JSON API on /bla.
const MAX_BODY = 1 << 20;
const HELLO = { headers: { "content-type": "text/plain" } };
const error = (status, text) => Response.json({ error: text }, { status });

// A missing content type counts as JSON.
function isJson(request) {
  const type = request.headers.get("content-type");
  return type === null || type.split(";", 1)[0].trim().toLowerCase() === "application/json";
}

async function name(request) {
  if (Number(request.headers.get("content-length")) > MAX_BODY) {
    return error(413, "Content Too Large");
  }
  const params = await request.json().catch(() => null);
  if (params === null || typeof params !== "object" || Array.isArray(params)) {
    return error(400, "Bad Request");
  }
  return Response.json({ name: params.name ?? null });
}

function isRead({ method }) {
  return method === "GET" || method === "HEAD";
}

function hello(request) {
  return isRead(request) ? new Response("Hello, World!", HELLO) : error(404, "Not Found");
}

function bla(request) {
  const reads = isRead(request);
  if (!reads && request.method !== "POST") return error(404, "Not Found");
  if (!isJson(request)) return error(406, "Not Acceptable");
  return reads ? Response.json({ results: [1, 2, 3] }) : name(request);
}

// A URL object for each request costs more than the rest of the response.
function pathOf(url) {
  const start = url.indexOf("/", url.indexOf("//") + 2);
  const query = url.indexOf("?", start);
  return query < 0 ? url.slice(start) : url.slice(start, query);
}

export default {
  fetch(request) {
    switch (pathOf(request.url)) {
      case "/":
        return hello(request);
      case "/bla":
        return bla(request);
      default:
        return error(404, "Not Found");
    }
  },
};
