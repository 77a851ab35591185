"use strict";

const { now, run, sleep } = require("./context.cjs");

const CHUNK = 5000;

function open(url, schema, need) {
  const Boss = need("pg-boss");
  const boss = new Boss({ connectionString: url, schema, max: 2, supervise: false, schedule: false, connectionTimeoutMillis: 10000, query_timeout: 60000 });
  boss.on("error", () => {});
  return boss;
}

async function fill({ url, schema, fill: jobs }, need) {
  const boss = open(url, schema, need);
  await boss.start();
  await boss.createQueue("race");
  for (let start = 0; start < jobs; start += CHUNK) {
    const specs = [];
    for (let n = start; n < Math.min(start + CHUNK, jobs); n++) specs.push({ name: "race", data: { n } });
    await boss.insert(specs);
  }
  await boss.stop({ graceful: false });
}

async function work({ url, schema, batch, workSeconds }, need, context) {
  const boss = open(url, schema, need);
  await boss.start();
  await boss.getQueueSize("race");
  await context.ready();
  while (!context.over) {
    const asked = now();
    const jobs = await boss.fetch("race", { batchSize: batch });
    if (jobs.length === 0) {
      await sleep(0.001);
      continue;
    }
    context.claimed(asked, jobs.map((job) => job.data.n));
    if (workSeconds) await sleep(workSeconds * jobs.length);
    await boss.complete("race", jobs.map((job) => job.id));
    context.left(jobs.length);
  }
  await boss.stop({ graceful: false });
}

run(fill, work);
