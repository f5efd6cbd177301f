// Express with node-postgres: named statements that each connection prepares once.
import { setTimeout } from "node:timers/promises";
import { crc32 } from "node:zlib";

import express from "express";
import pg from "pg";

const { DATABASE_URL, POOL_SIZE, PORT, HOST } = process.env;
const pool = new pg.Pool({ connectionString: DATABASE_URL, max: Number(POOL_SIZE ?? 10) });

const app = express();
app.disable("x-powered-by");
app.disable("etag");
app.set("view engine", "ejs");
app.enable("view cache");

const numbers = (text) => String(text).split(",").map(Number);

async function row(id) {
  const text = "SELECT id, number FROM world WHERE id = $1";
  const { rows } = await pool.query({ name: "row", text, values: [id] });
  return rows[0];
}

const rows = (ids) => Promise.all(numbers(ids).map(row));

// All rows by id, read at the first request for them.
let kept;
const cache = () => (kept ??= pool.query("SELECT id, number FROM world").then(byId));
const byId = ({ rows }) => new Map(rows.map((world) => [world.id, world]));

app.get("/json", (req, res) => {
  res.json({ message: `Hello, ${req.query.name}!` });
});

app.get("/cached", async (req, res) => {
  const all = await cache();
  res.json(numbers(req.query.ids).map((id) => all.get(id)));
});

app.post("/upload", async (req, res) => {
  let [bytes, sum] = [0, 0];
  for await (const chunk of req) {
    bytes += chunk.length;
    sum = crc32(chunk, sum);
  }
  res.json({ bytes, crc32: sum.toString(16).padStart(8, "0") });
});

app.get("/delay", async (req, res) => {
  const ms = Number(req.query.ms);
  await setTimeout(ms);
  res.json({ ms });
});

app.get("/db", async (req, res) => {
  res.json(await row(Number(req.query.id)));
});

app.get("/queries", async (req, res) => {
  res.json(await rows(req.query.ids));
});

app.post("/updates", async (req, res) => {
  const worlds = await rows(req.query.ids);
  const changed = numbers(req.query.numbers);
  worlds.forEach((world, i) => (world.number = changed[i]));
  await pool.query({
    name: "change",
    text: `UPDATE world SET number = new.number
      FROM unnest($1::int[], $2::int[]) AS new(id, number) WHERE world.id = new.id`,
    values: [worlds.map(({ id }) => id), changed],
  });
  res.json(worlds);
});

app.get("/fortunes", async (req, res) => {
  const text = "SELECT id, message FROM fortune";
  const { rows: fortunes } = await pool.query({ name: "fortunes", text });
  fortunes.push({ id: 0, message: `Brought by the request: ${req.query.text}` });
  fortunes.sort((a, b) => (a.message < b.message ? -1 : 1));
  res.render("fortunes", { fortunes });
});

app.use((req, res) => res.status(404).json({ error: "Not Found" }));
// The four parameters make this an error handler. Express's own handler responds in HTML.
app.use((failure, req, res, next) => res.status(500).json({ error: failure.message }));

const server = app.listen(Number(PORT ?? 8080), HOST);
server.keepAliveTimeout = 65_000;
process.on("SIGTERM", () => process.exit(0));
