// Fastify with its plugins for PostgreSQL and for pages, and schemas for what it sends.
import { setTimeout } from "node:timers/promises";
import { crc32 } from "node:zlib";

import postgres from "@fastify/postgres";
import view from "@fastify/view";
import ejs from "ejs";
import Fastify from "fastify";

const { DATABASE_URL, POOL_SIZE, PORT, HOST } = process.env;
const app = Fastify({ logger: false, bodyLimit: 16 << 20 });
// Bodies of this type are read as they arrive.
app.addContentTypeParser("application/octet-stream", (request, body, done) => done(null, body));
app.register(postgres, { connectionString: DATABASE_URL, max: Number(POOL_SIZE ?? 10) });
app.register(view, { engine: { ejs }, root: "views", production: true });

const properties = { id: { type: "integer" }, number: { type: "integer" } };
const world = { type: "object", properties };
const sends = (schema) => ({ schema: { response: { 200: schema } } });
const one = sends(world);
const many = sends({ type: "array", items: world });

const numbers = (text) => String(text).split(",").map(Number);

async function row(id) {
  const text = "SELECT id, number FROM world WHERE id = $1";
  const { rows } = await app.pg.query({ name: "row", text, values: [id] });
  return rows[0];
}

const rows = (ids) => Promise.all(numbers(ids).map(row));

// All rows by id, read at the first request for them.
let kept;
const cache = () => (kept ??= app.pg.query("SELECT id, number FROM world").then(byId));
const byId = ({ rows }) => new Map(rows.map((world) => [world.id, world]));

const greeting = sends({ type: "object", properties: { message: { type: "string" } } });

app.get("/json", greeting, async ({ query }) => ({ message: `Hello, ${query.name}!` }));

app.get("/cached", many, async ({ query }) => {
  const all = await cache();
  return numbers(query.ids).map((id) => all.get(id));
});

const uploaded = { bytes: { type: "integer" }, crc32: { type: "string" } };

app.post("/upload", sends({ type: "object", properties: uploaded }), async ({ body }) => {
  let [bytes, sum] = [0, 0];
  for await (const chunk of body) {
    bytes += chunk.length;
    sum = crc32(chunk, sum);
  }
  return { bytes, crc32: sum.toString(16).padStart(8, "0") };
});

const delayed = sends({ type: "object", properties: { ms: { type: "integer" } } });

app.get("/delay", delayed, async ({ query }) => {
  const ms = Number(query.ms);
  await setTimeout(ms);
  return { ms };
});

app.get("/db", one, ({ query }) => row(Number(query.id)));

app.get("/queries", many, ({ query }) => rows(query.ids));

app.post("/updates", many, async ({ query }) => {
  const worlds = await rows(query.ids);
  const changed = numbers(query.numbers);
  worlds.forEach((world, i) => (world.number = changed[i]));
  await app.pg.query({
    name: "change",
    text: `UPDATE world SET number = new.number
      FROM unnest($1::int[], $2::int[]) AS new(id, number) WHERE world.id = new.id`,
    values: [worlds.map(({ id }) => id), changed],
  });
  return worlds;
});

app.get("/fortunes", async ({ query }, reply) => {
  const text = "SELECT id, message FROM fortune";
  const { rows: fortunes } = await app.pg.query({ name: "fortunes", text });
  fortunes.push({ id: 0, message: `Brought by the request: ${query.text}` });
  fortunes.sort((a, b) => (a.message < b.message ? -1 : 1));
  return reply.type("text/html; charset=utf-8").view("fortunes.ejs", { fortunes });
});

await app.listen({ port: Number(PORT ?? 8080), host: HOST });
process.on("SIGTERM", () => process.exit(0));
