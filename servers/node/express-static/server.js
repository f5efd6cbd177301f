// Express with its static files, and its compression middleware.
import compression from "compression";
import express from "express";

const { FILES, PORT, HOST } = process.env;

const app = express();
app.disable("x-powered-by");
app.use("/static", compression(), express.static(FILES, { index: false }));
app.use((req, res) => res.status(404).json({ error: "Not Found" }));

const server = app.listen(Number(PORT ?? 8080), HOST);
server.keepAliveTimeout = 65_000;
process.on("SIGTERM", () => process.exit(0));
