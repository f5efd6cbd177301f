// The server of server.js behind Deno.serve, because `deno serve` has no options for TLS.
import server from "./server.js";

const [port, certificate, key] = Deno.args;
Deno.serve({
  port: Number(port),
  cert: Deno.readTextFileSync(certificate),
  key: Deno.readTextFileSync(key),
}, server.fetch);
