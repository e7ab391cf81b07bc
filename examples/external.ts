// Words of lines, by steps in TypeScript: rows lie in files, and carry acker's stamps.
//
//     ACKER_TOKEN=... node external.js http://127.0.0.1:8080 files FOLDER split     (or spout, or count)
//     ACKER_TOKEN=... node external.js http://127.0.0.1:8080 files FOLDER --check
//
//     lines.txt --spout--> lines.jsonl --split--> words.jsonl --count--> count.json
//
// A file of lines of JSON is a queue: its reader notes in a file beside it how far it has come. The order of a step
// keeps the promise: it writes its rows, then commits, then notes how far it has come. It may be killed between any
// two of these: rows come again then, and no record is acked too early. The counts are noted together with how far
// count has come, so it counts each row of its queue once. A word is in the queue twice if split was killed after
// it had written it. A line without words fails. --check runs all three at once, on lines of its own, until each
// record has its outcome, and compares. With ACKER_ONCE=1 a step ends when it has worked on what there is.

import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";

import { get, newAnchor, pause, random, Refused, send } from "./service.js";

interface Line {
  text: string;
  stamp: string | null;
}
interface Row {
  state: string;
  anchors: string[];
  segment: string | null;
  position: number | null;
}
interface Stamped {
  stamps: (string | null)[];
  subscriptions: { number: string; name: string }[];
}
interface Outcome {
  confirmation: string | null;
  status: string;
  reason: string;
  trees: { message_id: string }[];
}
const BATCH = 100; // lines: a commit sends 10,000 rows at most
const SPOUT = "files";
const [service = "", topology = "", folder = "", role = ""] = process.argv.slice(2);
const path = `${service}/api/v1/topologies/${topology}`;

/** Replaces a file: a program that dies meanwhile leaves the earlier content. */
function replace(file: string, text: string): void {
  const own = openSync(`${file}.new`, "w");
  writeSync(own, text);
  fsyncSync(own);
  closeSync(own);
  renameSync(`${file}.new`, file);
}

function read(file: string, otherwise = ""): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return otherwise;
  }
}

/** A file of lines to which one program writes, and which others read. */
class Queue {
  readonly file: string;

  constructor(readonly stream: string) {
    this.file = join(folder, `${stream}.jsonl`);
  }

  /** Adds rows: they are on disk when it returns. */
  write(lines: Line[]): void {
    const before = read(this.file);
    const cut = before && !before.endsWith("\n") ? "\n" : ""; // a line that a killed writer has begun
    const own = openSync(this.file, "a");
    writeSync(own, cut + lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    fsyncSync(own);
    closeSync(own);
  }

  /** The next rows from a byte on, and the byte after them. */
  from(offset: number): [Line[], number] {
    const rest = readFileSync(this.file).subarray(offset);
    const lines: Line[] = [];
    let at = 0;
    while (lines.length < BATCH) {
      const end = rest.indexOf(10, at);
      if (end < 0) break;
      try {
        lines.push(JSON.parse(rest.subarray(at, end).toString()) as Line);
      } catch {
        // cut: its writer has never committed it
      }
      at = end + 1;
    }
    return [lines, offset + at];
  }

  get size(): number {
    return statSync(this.file, { throwIfNoEntry: false })?.size ?? 0;
  }
}

type Counts = Record<string, number>;

/** Works on the rows of a stream; `work` gives the rows that become of one, or raises. */
class Step {
  private readonly file: string;
  private offset = 0;

  constructor(
    private readonly incoming: Queue,
    private readonly subscription: string,
    private readonly outgoing: Queue | null,
    private readonly work: (text: string) => string[],
    private readonly counts: Counts = {},
  ) {
    this.file = join(folder, `${subscription}.json`);
    const noted = JSON.parse(read(this.file, "{}")) as { offset?: number; counts?: Counts };
    this.offset = noted.offset ?? 0;
    Object.assign(counts, noted.counts);
  }

  private get at(): string {
    return `${path}/streams/${this.incoming.stream}/subscriptions/${this.subscription}`;
  }

  /** Before the first row is sent: what nobody subscribes to, nobody owes anything for. */
  async subscribe(): Promise<void> {
    await send("PUT", this.at, {});
  }

  /** Works on what there is, one batch after the other. */
  async run(): Promise<void> {
    while (this.incoming.size > this.offset) {
      const [lines, next] = this.incoming.from(this.offset);
      if (next === this.offset) return; // a line that is being written
      if (lines.length) await this.batch(lines);
      this.offset = next;
      replace(this.file, JSON.stringify({ offset: this.offset, counts: this.counts }));
    }
  }

  private async batch(lines: Line[]): Promise<void> {
    const commit = crypto.randomUUID();
    const asked = { stamps: lines.map((line) => line.stamp) };
    const { rows } = await send<{ rows: Row[] }>("POST", `${this.at}/rows`, asked);
    const acked = new Map<string, [number, number][]>();
    const failed: object[] = [];
    const texts: string[] = [];
    const anchors: string[][] = [];
    lines.forEach((line, number) => {
      const row = rows[number];
      try {
        const made = this.work(line.text);
        texts.push(...made);
        made.forEach(() => anchors.push(row?.anchors ?? []));
        if (row?.segment != null && row.position != null) {
          const ranges = acked.get(row.segment) ?? [];
          const last = ranges.at(-1);
          if (last?.[1] === row.position - 1) last[1] = row.position;
          else ranges.push([row.position, row.position]);
          acked.set(row.segment, ranges);
        }
      } catch (error) {
        if (row?.segment) failed.push({ segment: row.segment, stamp: line.stamp, reason: (error as Error).message });
      }
    });
    const received = {
      stream: this.incoming.stream,
      subscription: this.subscription,
      acked: [...acked].map(([segment, positions]) => ({ segment, positions })),
      failed,
    };
    const sent = this.outgoing ? await stamped(this.outgoing, texts, anchors, commit) : [];
    await send("POST", `${path}/commits`, { received: [received], sent }, commit);
  }
}

/** Stamps rows and writes them; returns what the commit says of them. */
async function stamped(queue: Queue, texts: string[], anchors: string[][], commit: string): Promise<object[]> {
  if (!texts.length) return [];
  const at = `${path}/streams/${queue.stream}/stamps`;
  const made = await send<Stamped>("POST", at, { commit, rows: anchors });
  queue.write(texts.map((text, number) => ({ text, stamp: made.stamps[number] ?? null })));
  return [{ stream: queue.stream, ...made }];
}

/** Tracks each line as a record, and sends it as a row: its tuple is acked with the commit of that row. */
async function spout(queue: Queue, lines: string[]): Promise<void> {
  const commit = crypto.randomUUID();
  const acks = lines.map(() => ({ anchor: newAnchor(), value: (random() | 1n).toString() }));
  const messages = acks.map((ack, number) => ({
    type: "track", spout: SPOUT, message_id: `line ${number + 1}`, ...ack,
  }));
  await send("POST", `${path}/messages`, { messages });
  const sent = await stamped(queue, lines, acks.map((ack) => [ack.anchor]), commit);
  await send("POST", `${path}/commits`, { sent, acks }, commit);
}

/** Reads outcomes and confirms them, until so many records have theirs: message id -> status and reason. */
async function outcomes(count: number, meanwhile: () => Promise<void>): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  while (found.size < count) {
    await meanwhile();
    const page = await get<{ outcomes: Outcome[] }>(`${path}/spouts/${SPOUT}/outcomes?wait=1`);
    for (const one of page.outcomes) {
      for (const tree of one.trees) found.set(tree.message_id, `${one.status} ${one.reason}`.trim());
      if (one.confirmation)
        await send("POST", `${path}/spouts/${SPOUT}/outcomes/confirm`, { confirmations: [one.confirmation] });
    }
  }
  return found;
}

const lines = new Queue("lines");
const words = new Queue("words");
const split = new Step(lines, "split", words, (text) => {
  const made = text.toLowerCase().match(/\p{L}+/gu);
  if (!made) throw new Error("no words");
  return made;
});
const counts = Object.create(null) as Counts; // "constructor" is a word like any other
const count = new Step(
  words,
  "count",
  null,
  (text) => {
    counts[text] = (counts[text] ?? 0) + 1;
    return [];
  },
  counts,
);
mkdirSync(folder, { recursive: true });
await send("PUT", path, {});
await split.subscribe();
await count.subscribe();

async function check(): Promise<void> {
  const texts = Array.from({ length: 30 }, (_, number) => (number % 10 ? `the line ${"x".repeat(number)}` : "..."));
  await send("PUT", `${path}/spouts/${SPOUT}`, {});
  await spout(lines, texts);
  const told = await outcomes(texts.length, async () => {
    await split.run();
    await count.run();
  });
  texts.forEach((text, number) => {
    const wanted = text === "..." ? "failed no words" : "acked";
    const got = told.get(`line ${number + 1}`);
    if (got !== wanted) throw new Error(`line ${number + 1}: expected ${wanted}, got ${got ?? "nothing"}`);
  });
  if (counts["line"] !== 27) throw new Error(`line: expected 27 times, got ${counts["line"] ?? 0}`);
  console.log(`${texts.length} records have their outcome`);
}

try {
  if (role === "--check") await check();
  else if (role === "spout") await spout(lines, read(join(folder, "lines.txt")).split("\n").filter(Boolean));
  else if (role === "split" || role === "count") {
    for (;;) {
      await (role === "split" ? split : count).run();
      if (process.env["ACKER_ONCE"]) break;
      await pause();
    }
  } else throw new Error(`expected spout, split, count or --check, got ${role}`);
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  console.error(`${error.kind}: ${error.message}`); // a start from the noted offset is all that it takes
  process.exitCode = 1;
}
