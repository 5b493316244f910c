import { PgBoss } from 'pg-boss';
import { inBulk, inLoops, loadOf, obey } from './commands.mjs';

const { address: host, tasks, payload } = loadOf(process.argv.slice(2));
const name = 'bench';
const data = { payload };

const boss = new PgBoss({ host, user: 'bench', database: 'postgres' });
boss.on('error', (error) => {
  throw error;
});

async function work(messages) {
  let handled = 0;
  const options = {
    batchSize: tasks,
    localConcurrency: 4,
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
  };
  await new Promise((resolve, reject) => {
    const handler = async (jobs) => {
      handled += jobs.length;
      if (handled === messages) resolve();
    };
    boss.work(name, options, handler).catch(reject);
  });
  // A batch is completed after its handler, and stopping waits for that.
  await boss.offWork(name);
  return handled;
}

async function waiting() {
  // Its own counts are up to a minute old.
  const count = "SELECT count(*) FROM pgboss.job WHERE name = $1 AND state <> 'completed'";
  const { rows } = await boss.getDb().executeSql(count, [name]);
  return Number(rows[0].count);
}

await boss.start();
await boss.createQueue(name);
await obey({
  send: (messages) => inLoops(tasks, messages, () => boss.send(name, data)),
  bulk: (messages) => inBulk(messages, { data }, (jobs) => boss.insert(name, jobs)),
  work,
  waiting,
});
await boss.stop();
