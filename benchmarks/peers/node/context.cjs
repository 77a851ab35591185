// The Node side of the pipe to the Python process that represents this worker in the comparison.
//
// In:  one line of JSON with the settings, then "go", then "stop".
// Out: "ready"; "c SECONDS NUMBER…" for started jobs, with the time since the request; "l COUNT" for jobs acknowledged;
//      "cpu SECONDS" at the end.

"use strict";

const path = require("node:path");
const readline = require("node:readline");
const { createRequire } = require("node:module");

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const now = () => Number(process.hrtime.bigint()) / 1e9;

// The packages are installed outside the checkout.
const packages = (home) => createRequire(path.join(home, "package.json"));

const lines = readline.createInterface({ input: process.stdin });
const waiting = [];
const arrived = [];
lines.on("line", (line) => (waiting.length ? waiting.shift()(line) : arrived.push(line)));
// The parent process has ended.
lines.on("close", () => process.exit(1));
const nextLine = () => (arrived.length ? Promise.resolve(arrived.shift()) : new Promise((resolve) => waiting.push(resolve)));

// One write per turn of the event loop.
let out = "";
function send(line) {
  if (out === "") setImmediate(flush);
  out += line + "\n";
}
function flush() {
  if (out !== "") process.stdout.write(out);
  out = "";
}

let cpu;
const context = {
  claimed: (asked, numbers) => send(`c ${(now() - asked).toFixed(6)} ${numbers.join(" ")}`),
  left: (count) => send(`l ${count}`),
  over: false,
  async ready() {
    send("ready");
    await nextLine();
    cpu = process.cpuUsage();
    nextLine().then(() => {
      context.over = true;
      context.stop();
    });
  },
  stop() {},
};

async function main(fill, work) {
  const settings = JSON.parse(await nextLine());
  if (settings.fill === null) {
    await work(settings, packages(settings.home), context);
    const spent = process.cpuUsage(cpu);
    send(`cpu ${(spent.user + spent.system) / 1e6}`);
  } else {
    await fill(settings, packages(settings.home));
  }
  flush();
  process.stdout.write("", () => process.exit(0));
}

module.exports = {
  now,
  sleep,
  run: (fill, work) =>
    main(fill, work).catch((error) => {
      process.stderr.write(`${error.stack || error}\n`, () => process.exit(1));
    }),
};
