/** Which dead letters a view is about: as it stands in its URL, and as the service is asked for it. */

import type { Schemas } from "../../api/client";
import type { ReadGroups } from "../../api/queries";

export type DeadLetter = Schemas["DeadLetter"];
export type Group = Schemas["Group"];
export type Matching = Partial<Schemas["Matching"]>;

/** In the URL a cause and a step stand after a "=", for an empty one is one, too. */
export const FILTER = { status: "", spout: "", step: "", reason: "", cause: "", age: "" };
export type Filter = typeof FILTER;

const HOUR = 3600;
export const AGES: readonly (readonly [string, string])[] = [
  [`-${HOUR}`, "in the last hour"],
  [`-${24 * HOUR}`, "in the last day"],
  [`-${7 * 24 * HOUR}`, "in the last 7 days"],
  [`${HOUR}`, "over an hour ago"],
  [`${24 * HOUR}`, "over a day ago"],
  [`${7 * 24 * HOUR}`, "over 7 days ago"],
];

export function exactly(text: string | null): string {
  return text === null ? "" : `=${text}`;
}

export function matching({ status, spout, step, reason, cause, age }: Filter): Matching {
  const seconds = Number(age);
  return {
    ...(status === "failed" || status === "expired" ? { status } : {}),
    ...(spout === "" ? {} : { spout }),
    ...(step === "" ? {} : { step: step.replace(/^=/, "") }),
    ...(reason === "" ? {} : { reason }),
    ...(cause === "" ? {} : { cause: cause.replace(/^=/, "") }),
    ...(seconds > 0 ? { older_than: seconds } : seconds < 0 ? { newer_than: -seconds } : {}),
  };
}

/** The filter of a group, within what was asked for. */
export function ofGroup(asked: Matching, group: Group): Matching {
  return {
    ...asked,
    ...(group.cause === null ? {} : { cause: group.cause }),
    ...(group.step === null ? {} : { step: group.step }),
    ...(group.status === null ? {} : { status: group.status }),
  };
}

export interface Groups {
  groups: Group[];
  count: number;
  until: string;
  /** Whether there are more than were counted. */
  more: boolean;
}

/** Most calls for the groups of all: each counts ten thousand, and a spout has a hundred thousand at most. */
const MOST_CALLS = 40;

/** The groups of all pages, added up. onPage: is called with the count so far, after each page but the last. */
export async function readGroups(read: ReadGroups, onPage: (part: Groups) => void): Promise<Groups> {
  const found = new Map<string, Group>();
  let cursor: string | null = null;
  let until = "";
  for (let call = 0; call < MOST_CALLS; call += 1) {
    const page: Schemas["Groups"] = await read(cursor);
    if (until === "") until = page.until;
    for (const one of page.groups) add(found, one);
    cursor = page.cursor;
    if (cursor === null) break;
    onPage(together(found, until, true));
  }
  return together(found, until, cursor !== null);
}

function together(found: Map<string, Group>, until: string, more: boolean): Groups {
  const groups = [...found.values()].sort((a, b) => b.count - a.count || b.newest.localeCompare(a.newest));
  return { groups, count: groups.reduce((sum, one) => sum + one.count, 0), until, more };
}

export function groupId(group: Group): string {
  return JSON.stringify([group.cause, group.step, group.status]);
}

function add(found: Map<string, Group>, one: Group) {
  const key = groupId(one);
  const known = found.get(key);
  if (known === undefined) {
    found.set(key, one);
    return;
  }
  const later = known.newest >= one.newest ? known : one;
  found.set(key, {
    ...later,
    count: known.count + one.count,
    oldest: known.oldest <= one.oldest ? known.oldest : one.oldest,
  });
}
