// As many processes of server.js as there are cores to use, on one port.
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
      // A worker that ends unasked takes the server down: a race with fewer would be unfair.
      onExit: () => process.exit(1),
    }),
  );
}
