// What the programs of all queues in Node.js share: they do what each line on standard input says,
// and answer with a line of JSON.
//
// Lines are `send N`, `bulk N`, `work N` and `waiting`. The program that started this one reads the
// clock and the server's processor time.

import { createInterface } from 'node:readline';

const BULK = 1000;

// The server's address, how many loops send at once, and a payload.
export function loadOf([address, tasks, payloadBytes]) {
  return { address, tasks: Number(tasks), payload: 'p'.repeat(Number(payloadBytes)) };
}

export async function inLoops(tasks, messages, send) {
  let next = 0;
  const sender = async () => {
    while (next++ < messages) {
      await send();
    }
  };
  await Promise.all(Array.from({ length: tasks }, sender));
  return messages;
}

export async function inBulk(messages, job, send) {
  for (let first = 0; first < messages; first += BULK) {
    const length = Math.min(BULK, messages - first);
    await send(Array.from({ length }, () => ({ ...job })));
  }
  return messages;
}

export async function obey(verbs) {
  console.log(JSON.stringify({ messages: 0 }));
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, messages] = line.trim().split(' ');
    console.log(JSON.stringify({ messages: await verbs[verb](Number(messages)) }));
  }
}
