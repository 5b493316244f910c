import { Queue, Worker } from 'bullmq';
import { inBulk, inLoops, loadOf, obey } from './commands.mjs';

const { address, tasks, payload: data } = loadOf(process.argv.slice(2));
// `maxRetriesPerRequest: null` is what BullMQ asks of a worker's connection.
const connection = { host: '127.0.0.1', port: Number(address), maxRetriesPerRequest: null };
const name = 'bench';

// As "Auto-removal of jobs" says: finished jobs are not kept.
const queue = new Queue(name, {
  connection,
  defaultJobOptions: { removeOnComplete: true, removeOnFail: false },
});

async function work(messages) {
  let handled = 0;
  let completed = 0;
  const handler = async () => {
    handled += 1;
  };
  const worker = new Worker(name, handler, { connection, concurrency: tasks });
  await new Promise((resolve, reject) => {
    worker.on('completed', () => {
      completed += 1;
      if (completed === messages) resolve();
    });
    worker.on('failed', (job, error) => reject(error));
    worker.on('error', reject);
  });
  // Stopping is not part of the work: `waiting`, which comes next, waits for it.
  stopped = worker.close();
  if (handled !== completed) throw new Error(`${handled} handled, ${completed} completed`);
  return completed;
}

async function waiting() {
  await stopped;
  const counts = await queue.getJobCounts('waiting', 'active', 'delayed', 'failed', 'completed');
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

let stopped = Promise.resolve();
await queue.waitUntilReady();
await obey({
  send: (messages) => inLoops(tasks, messages, () => queue.add('job', data)),
  bulk: (messages) => inBulk(messages, { name: 'job', data }, (jobs) => queue.addBulk(jobs)),
  work,
  waiting,
});
await stopped;
await queue.close();
