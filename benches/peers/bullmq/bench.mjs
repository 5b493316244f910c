// BullMQ's part: does what each line on standard input says, and answers with a line of JSON.
//
// Lines are `send N`, `bulk N`, `work N` and `waiting`. The clock and the server's processor time are
// read by the program that started this one.

import { createInterface } from 'node:readline';
import { Queue, Worker } from 'bullmq';

const [port, tasks, payloadBytes] = process.argv.slice(2).map(Number);
// `maxRetriesPerRequest: null` is what BullMQ asks of a worker's connection.
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };
const name = 'bench';
const data = 'p'.repeat(payloadBytes);
const BULK = 1000;

// As "Auto-removal of jobs" says: finished jobs are not kept.
const queue = new Queue(name, {
  connection,
  defaultJobOptions: { removeOnComplete: true, removeOnFail: false },
});

async function send(messages) {
  let next = 0;
  const sender = async () => {
    while (next++ < messages) {
      await queue.add('job', data);
    }
  };
  await Promise.all(Array.from({ length: tasks }, sender));
  return messages;
}

async function bulk(messages) {
  for (let first = 0; first < messages; first += BULK) {
    const length = Math.min(BULK, messages - first);
    await queue.addBulk(Array.from({ length }, () => ({ name: 'job', data })));
  }
  return messages;
}

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
  // Stopping is not part of the work; the next line waits for it.
  stopped = worker.close();
  if (handled !== completed) throw new Error(`${handled} handled, ${completed} completed`);
  return completed;
}

async function waiting() {
  const counts = await queue.getJobCounts('waiting', 'active', 'delayed', 'failed', 'completed');
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

let stopped = Promise.resolve();
const verbs = { send, bulk, work, waiting };
await queue.waitUntilReady();
console.log(JSON.stringify({ messages: 0 }));
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, messages] = line.trim().split(' ');
  if (verb !== 'work') await stopped;
  console.log(JSON.stringify({ messages: await verbs[verb](Number(messages)) }));
}
await stopped;
await queue.close();
