// Completes the jobs of a queue until it is ended: node drain.js URL QUEUE JOURNAL. The token is in QUEUE_DB_TOKEN.
// It ends, too, when its standard input is closed: with the process that has started it.
// The journal gets a line for each completion that the service has confirmed: the job's id, and the result that it was given.

import { appendFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';

import { client } from './client/client.gen';
import { claimJobs, settleJobs } from './client/sdk.gen';
import type { ClaimedJob, Settlement } from './client/types.gen';

const [url, queue, journal] = process.argv.slice(2) as [string, string, string];
const LEASE = 3;

client.setConfig({ baseUrl: url, auth: () => process.env['QUEUE_DB_TOKEN'] });

/** Try again while nothing answers, or the service says that it cannot now. Whether the last try had an effect is unknown. */
async function persistently<T>(call: () => Promise<{ data?: T; error?: unknown; response?: Response }>): Promise<T> {
  for (;;) {
    let status: number | undefined;
    try {
      const { data, error, response } = await call();
      if (data !== undefined) return data;
      status = response?.status;
      if (status !== undefined && status !== 429 && status < 500) throw new RangeError(`${status}: ${JSON.stringify(error)}`);
    } catch (error) {
      if (error instanceof RangeError) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function main(): Promise<void> {
  for (;;) {
    const { jobs } = await persistently(() =>
      claimJobs({ path: { queue }, body: { limit: 20, lease: LEASE, wait: 5, worker: `node-${process.pid}` } }),
    );
    if (jobs.length === 0) continue;
    const results = new Map(jobs.map((job: ClaimedJob) => [job.id, randomUUID()]));
    const settlements = jobs.map(
      (job: ClaimedJob): Settlement => ({ lease: job.lease, verb: 'complete', result: results.get(job.id), result_ttl: 3600 }),
    );
    const { verdicts } = await persistently(() => settleJobs({ path: { queue }, body: { settlements } }));
    const applied = verdicts.filter((one) => one.verdict === 'applied');
    appendFileSync(journal, applied.map((one) => `${one.id} ${results.get(one.id)}\n`).join(''));
  }
}

process.stdin.on('end', () => process.exit(1)).resume();

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
