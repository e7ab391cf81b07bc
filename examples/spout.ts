// A spout and a bolt by HTTP alone: each line of the standard input is a tree, acked when its words are counted.
//
//     ACKER_TOKEN=... node spout.ts http://127.0.0.1:8080 lines < poem.txt
//
// A line without words fails. Every line is printed once it has its outcome, and confirmed after that. The program
// ends when all have theirs. What it sends it sends until it is answered, under a key: so it takes effect once.

import { createInterface } from "node:readline";

import { headers, newAnchor, pause, random, Refused, send } from "./service.js";

interface Outcomes {
  confirmation: string | null;
  status: "acked" | "failed" | "expired";
  reason: string;
  trees: { anchor: string; message_id: string | null; latency: number }[];
}
interface Tree {
  messageId: string;
  due: number;
}
const SPOUT = "stdin";
const [service = "http://127.0.0.1:8080", topology = "lines"] = process.argv.slice(2);
const path = `${service}/api/v1/topologies/${topology}`;
const spout = `${path}/spouts/${SPOUT}`;

const words = new Map<string, number>();
/** What was tracked and has no outcome yet, by anchor. */
const pending = new Map<string, Tree>();
let settle = (): void => undefined;
/** Counts the words of a line: the bolt's work. */
function count(line: string): void {
  const found = line.toLowerCase().match(/\p{L}+/gu);
  if (!found) throw new Error("no words");
  for (const word of found) words.set(word, (words.get(word) ?? 0) + 1);
}

/** Tracks a line with one tuple, and acks or fails that tuple. */
async function emit(messageId: string, line: string, timeout: number): Promise<void> {
  const anchor = newAnchor();
  const value = (random() | 1n).toString();
  // The service expires it within 1.5 message timeouts. Where the store lost it, this side has to notice.
  pending.set(anchor, { messageId, due: Date.now() + 2000 * timeout });
  const track = { type: "track", spout: SPOUT, anchor, value, message_id: messageId };
  const said = (await send("POST", `${path}/messages`, { messages: [track] })) as {
    track: { rejected: string[] };
  };
  if (said.track.rejected.length) {
    pending.delete(anchor);
    await pause();
    return emit(messageId, line, timeout); // the topology is full: until its spouts confirm
  }
  let last: object = { type: "ack", anchor, value };
  try {
    count(line);
  } catch (error) {
    last = { type: "fail", anchor, reason: String(error) };
  }
  await send("POST", `${path}/messages`, { messages: [last] });
}

/** Tells of outcomes, and confirms them. They come at least once: one of a tree that is gone is no news. */
async function take(reported: Outcomes): Promise<void> {
  for (const tree of reported.trees) {
    const own = pending.get(tree.anchor);
    const name = own?.messageId ?? tree.message_id ?? tree.anchor;
    console.log(`${name} ${reported.status} ${reported.reason}`.trim());
  }
  if (reported.confirmation) await send("POST", `${spout}/outcomes/confirm`, { confirmations: [reported.confirmation] });
  for (const tree of reported.trees) pending.delete(tree.anchor);
  settle();
}

/** The data of a stream's events, with the id of each. */
async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<[string, string]> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true });
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const field = (name: string): string =>
        block
          .split("\n")
          .filter((line) => line.startsWith(`${name}: `))
          .map((line) => line.slice(name.length + 2))
          .join("\n");
      if (field("data")) yield [field("id"), field("data")];
    }
  }
}

/** Reads outcomes until it is to stop: where the stream ends, after its last event. */
async function listen(stop: AbortSignal): Promise<void> {
  let last = "";
  while (!stop.aborted) {
    try {
      const own = headers(last ? { "Last-Event-ID": last } : {});
      const answer = await fetch(`${spout}/outcomes/events`, { headers: own, signal: stop });
      if (answer.ok && answer.body)
        for await (const [id, data] of events(answer.body)) {
          await take(JSON.parse(data) as Outcomes);
          last = id || last; // only now: what was not taken is to come again
        }
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    if (!stop.aborted) await pause();
  }
}

const made = (await send("PUT", path, {})) as { configuration: { message_timeout: number } };
const timeout = made.configuration.message_timeout;
await send("PUT", spout, {});
const stop = new AbortController();
const listening = listen(stop.signal);

let number = 0;
for await (const line of createInterface({ input: process.stdin })) {
  number += 1;
  await emit(`line ${number}`, line, timeout);
}
while (pending.size) {
  const now = Date.now();
  for (const [anchor, tree] of pending)
    if (tree.due < now) {
      console.log(`${tree.messageId} expired: the service has reported nothing of it`);
      pending.delete(anchor);
    }
  await Promise.race([pause(), new Promise<void>((resolve) => (settle = resolve))]);
}
stop.abort();
await listening;
console.error(`${words.size} words in ${number} lines`);
