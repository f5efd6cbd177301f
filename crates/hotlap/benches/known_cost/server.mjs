// A server whose work per request is known: --base and --extra are rounds of arithmetic, in two
// calls. With --alone N, the program does not serve, but times the extra rounds in stretches of N
// requests, and prints the nanoseconds per request of each stretch.

import http from "node:http";
import { parseArgs } from "node:util";

const number = { type: "string", default: "0" };
const { values } = parseArgs({ options: { base: number, extra: number, alone: number } });
const [base, extra, alone] = [values.base, values.extra, values.alone].map(Number);

const BODY = "Hello, World!";
const HEADERS = { "Content-Type": "text/plain", "Content-Length": BODY.length };

// The result is kept in a global variable, so that no compiler leaves the work out.
let seen = 0;

function work(rounds) {
  let x = 1;
  for (let i = 0; i < rounds; i++) x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff;
  seen ^= x;
}

function timeAlone() {
  for (let stretch = 0; stretch < 45; stretch++) {
    const began = process.cpuUsage();
    for (let i = 0; i < alone; i++) work(extra);
    const { user, system } = process.cpuUsage(began);
    console.log(((user + system) * 1000) / alone);
  }
}

function respond(request, response) {
  if (base) work(base);
  if (extra) work(extra);
  response.writeHead(200, HEADERS);
  response.end(BODY);
}

if (alone) timeAlone();
else http.createServer(respond).listen(Number(process.env.PORT), "127.0.0.1");
