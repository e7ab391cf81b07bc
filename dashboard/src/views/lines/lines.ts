/** Lines: whose request a tree is of, and how far a request is. */

import type { Schemas } from "../../api/client";

type Section = Schemas["SectionState"];

/**
 * How far a request is with a section. `group`: it is done with it, and waits for others of its group; `now`: it is
 * the first that is not over; `later`: its group is not done with one before.
 */
export type Stand = "done" | "group" | "now" | "later";

const TAG = 3n << 61n;
const LINE_AT = 56n;
const SECTION_AT = 53n;
const SECTION = 7n << SECTION_AT;

/** The spout of the trees of all sections but the last of each line. Only the last one has the request's message id. */
export const SECTIONS = "acker.sections";

/** Whether an anchor may be of a tree of a line, by its tag (acker/ledger/slabs/sections.py). */
export function isOfLine(anchor: string): boolean {
  const number = BigInt(anchor);
  return number >= 0n && (number & TAG) === TAG && ((number >> LINE_AT) & 31n) !== 0n;
}

/** The section of an anchor of a line, from 1. */
export function sectionOf(anchor: string): number {
  return Number((BigInt(anchor) & SECTION) >> SECTION_AT) + 1;
}

/** The anchor of the same request in a section. */
export function within(anchor: string, section: number): string {
  return ((BigInt(anchor) & ~SECTION) | (BigInt(section - 1) << SECTION_AT)).toString();
}

/** How far a request is with each of its sections. */
export function stands(sections: readonly Pick<Section, "over" | "passed" | "stream">[]): Stand[] {
  const first = sections.findIndex((one) => !(one.stream === null ? one.over : one.passed));
  return sections.map((one, place) =>
    first < 0 || place < first ? "done" : place > first ? "later" : one.over ? "group" : "now",
  );
}

/**
 * Since when a request is as far as it is with a section: done, since its rows have gone on; at it, since the
 * section before is done. null where that is not known, or not yet.
 */
export function since(sections: readonly Section[], place: number): string | null {
  const [own, before] = [sections[place], sections[place - 1]];
  const stand = stands(sections)[place];
  if (own === undefined || stand === "later") return null;
  if (stand === "done") return own.released_at;
  return before === undefined ? (own.tree?.tracked_at ?? null) : before.released_at;
}

/** The section in which a request failed first, where a later one failed with it: its reason says so; else "". */
export function failedWith(reason: string): string {
  return /^in section ([A-Za-z0-9._-]+): /.exec(reason)?.[1] ?? "";
}

/** Numbers in ascending order, in few words: `0 to 3, 5 and 7`. */
function ranges(numbers: readonly number[]): string {
  const found: [number, number][] = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last !== undefined && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  const parts = found.flatMap(([first, last]) =>
    last - first > 1 ? [`${String(first)} to ${String(last)}`] : [...new Set([first, last])].map(String),
  );
  return parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1) ?? ""}` : (parts[0] ?? "");
}

/** Rows that wait, and for which tasks: `12 rows for task 0 and 3`. */
export function waiting(gathered: readonly Schemas["Gathered"][]): {
  rows: number;
  tasks: string;
  age: number | null;
} {
  const tasks = gathered.map((one) => one.task).sort((one, other) => one - other);
  const ages = gathered.flatMap((one) => (one.age === null ? [] : [one.age]));
  return {
    rows: gathered.reduce((sum, one) => sum + one.rows, 0),
    tasks: ranges(tasks),
    age: ages.length > 0 ? Math.max(...ages) : null,
  };
}

/** Where the page of a request is. */
export function requestPath(topology: string, anchor: string): string {
  return `/t/${topology}/lines/${within(anchor, 1)}`;
}
