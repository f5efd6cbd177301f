// Runs server.js with Deno.serve, because `deno serve` has no options for TLS.
import server from "./server.js";

const [hostname, port, certificate, key] = Deno.args;
Deno.serve({
  hostname,
  port: Number(port),
  cert: Deno.readTextFileSync(certificate),
  key: Deno.readTextFileSync(key),
}, server.fetch);
