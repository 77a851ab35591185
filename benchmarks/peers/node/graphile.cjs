"use strict";

const { now, run, sleep } = require("./context.cjs");

const CHUNK = 5000;

async function fill({ url, schema, fill: jobs }, need) {
  const { makeWorkerUtils } = need("graphile-worker");
  const utils = await makeWorkerUtils({ connectionString: url, schema });
  await utils.migrate();
  for (let start = 0; start < jobs; start += CHUNK) {
    const specs = [];
    for (let n = start; n < Math.min(start + CHUNK, jobs); n++) specs.push({ identifier: "job", payload: { n } });
    await utils.addJobs(specs);
  }
  await utils.release();
}

async function work({ url, schema, concurrency, local, connections, workSeconds }, need, context) {
  const { EventEmitter } = require("node:events");
  const { Pool } = need("pg");
  const { Logger, run: start } = need("graphile-worker");
  const pool = new Pool({ connectionString: url, max: connections, connectionTimeoutMillis: 10000, query_timeout: 60000 });
  pool.on("error", () => {});
  // Its "job:complete" comes before the DELETE, so the DELETE itself is watched.
  pool.on("connect", (client) => {
    client.on("error", () => {});
    const query = client.query;
    client.query = function (what, ...rest) {
      const answer = query.call(this, what, ...rest);
      if (what && what.text && what.text.startsWith("delete from") && what.text.includes("_private_jobs")) {
        return answer.then((result) => {
          context.left(result.rowCount);
          return result;
        });
      }
      return answer;
    };
  });
  await pool.query("select 1");
  await context.ready();

  const events = new EventEmitter();
  const asked = new WeakMap();
  events.on("worker:getJob:start", ({ worker }) => asked.set(worker, now()));
  events.on("job:start", ({ worker, job }) => context.claimed(asked.get(worker) ?? now(), [job.payload.n]));
  const batched = local > 0 ? { localQueue: { size: local }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } : {};
  const runner = await start({
    pgPool: pool,
    schema,
    events,
    noHandleSignals: true,
    logger: new Logger(() => () => {}),
    taskList: { job: async () => workSeconds && sleep(workSeconds) },
    preset: { worker: { schema, concurrentJobs: concurrency, pollInterval: 100, ...batched } },
  });
  const stopped = new Promise((resolve) => {
    context.stop = resolve;
    if (context.over) resolve();
  });
  await Promise.race([stopped, runner.promise]);
  await runner.stop();
  await pool.end();
}

run(fill, work);
