// BullMQ: a flow for each parent, in bulk. See benchmarks/peers.py, which installs what is imported here.

import cluster from "node:cluster";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { FlowProducer, Worker } from "bullmq";

const BULK = 100;
const CONCURRENCY = 50;
const [action, url, directory, parents, children, workers] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const opts = { removeOnComplete: true };

async function enqueue() {
  const producer = new FlowProducer({ connection });
  const start = performance.now();
  for (let first = 0; first < parents; first += BULK) {
    const flows = [];
    for (let parent = first; parent < Math.min(first + BULK, parents); parent++) {
      const jobs = Array.from({ length: Number(children) }, (_, number) => ({
        name: "child",
        queueName: "children",
        data: { parent, number },
        opts,
      }));
      flows.push({ name: "parent", queueName: "parents", data: { parent }, opts, children: jobs });
    }
    await producer.addBulk(flows);
  }
  console.log((performance.now() - start) / 1000);
  await producer.close();
}

function work() {
  let begun = false;
  const child = async () => {
    if (begun) return;
    begun = true;
    try {
      writeFileSync(join(directory, "first"), `${Date.now() / 1000}\n`, { flag: "wx" });
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
  };
  const parent = async () => appendFileSync(join(directory, "done"), ".");
  new Worker("children", child, { connection, concurrency: CONCURRENCY });
  new Worker("parents", parent, { connection, concurrency: CONCURRENCY });
}

if (action === "enqueue") {
  await enqueue();
} else if (cluster.isPrimary) {
  for (let number = 0; number < workers; number++) cluster.fork();
} else {
  work();
}
