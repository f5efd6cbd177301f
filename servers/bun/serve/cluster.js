// Starts one process of server.js for each core, all on one port.
const workers = [];
process.on("SIGTERM", () => {
  for (const worker of workers) worker.kill();
  process.exit(0);
});

for (let i = 0; i < Number(process.env.CPUS ?? 1); i++) {
  workers.push(
    Bun.spawn({
      cmd: [process.execPath, "server.js"],
      stdio: ["ignore", "inherit", "inherit"],
      env: { ...process.env, WORKER: String(i) },
      // If a worker ends unexpectedly, so does the server. Fewer workers would be unfair.
      onExit: () => process.exit(1),
    }),
  );
}
