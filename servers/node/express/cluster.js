// Starts one process of server.js for each core, all on one port.
import cluster from "node:cluster";

let stopping = false;
process.on("SIGTERM", () => {
  stopping = true;
  for (const worker of Object.values(cluster.workers)) worker.process.kill("SIGTERM");
});

cluster.setupPrimary({ exec: "server.js" });
for (let i = 0; i < Number(process.env.CPUS ?? 1); i++) cluster.fork();

// If a worker ends unexpectedly, so does the server. Fewer workers would make comparisons unfair.
cluster.on("exit", (worker, code, signal) => {
  if (stopping) return;
  console.error(`worker ${worker.id} ended (${signal ?? code})`);
  process.exit(1);
});
