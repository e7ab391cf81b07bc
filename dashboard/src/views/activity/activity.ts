/** Writes of people and programs, in words. */

import type { Schemas } from "../../api/client";
import { brief, count } from "../../lib/format";
import type { Group } from "../dead-letters/filter";

export type Activity = Schemas["Activity"];

export const ACTIONS = [
  "replay",
  "discard",
  "fail",
  "reset",
  "configure",
  "set-thresholds",
  "mute",
  "unmute",
  "create",
  "remove",
  "remove-spout",
  "pause-spout",
  "resume-spout",
  "declare-subscription",
  "rename-subscription",
  "remove-subscription",
  "give-back",
  "rotate-keys",
  "cancel-call",
  "remove-function",
  "mark",
] as const;

/** Characters after which the service cuts a value of a target; the last one is "…" then. */
const CUT = 300;
/** Characters of what a write named, in a sentence. */
const SHOWN = 60;

const PAST: Record<string, string> = {
  replay: "replayed",
  discard: "discarded",
  fail: "failed",
  reset: "reset",
  configure: "changed settings",
  "set-thresholds": "set thresholds",
  mute: "muted",
  unmute: "unmuted",
  create: "created the topology",
  "pause-spout": "paused",
  "resume-spout": "resumed",
  "remove-spout": "removed",
  "declare-subscription": "declared",
  "rename-subscription": "renamed",
  "remove-subscription": "removed",
  "give-back": "gave back",
  "rotate-keys": "rotated keys",
  "cancel-call": "cancelled",
  mark: "set a mark",
};

/** Writes that are told by how many they changed; of others it is told what they named. */
const COUNTED: readonly string[] = ["replay", "discard", "fail", "reset"];

/** What a write was done to, in a line: the values that it named. */
export function target({ target: named }: Activity): string {
  return Object.entries(named)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");
}

/** What came of a write. */
export function result({ done, result: said }: Activity): string {
  if (done) return said || "done";
  return said ? `not done: ${said}` : "not done";
}

/** The author, with a mark where nobody has proved it. */
export function author({ who, proved }: Activity): string {
  return proved ? who : `${who} (not proved)`;
}

/** The latest write of some kinds that has changed something, and fits. */
export function latest(
  of: readonly Activity[],
  actions: readonly string[],
  fits: (one: Activity) => boolean = () => true,
): Activity | undefined {
  return of.find((one) => actions.includes(one.action) && (one.count ?? Number(one.done)) > 0 && fits(one));
}

/** Whether a write was for the dead letters of a group. */
export function isOfGroup({ target: named }: Activity, group: Group): boolean {
  if (group.cause === null || named.cause !== cut(group.cause)) return false;
  return [group.step, group.status].every(
    (value, place) => value === null || (named[place === 0 ? "step" : "status"] ?? value) === value,
  );
}

/** In a sentence: "ann replayed 495 of this cause 3 min ago". */
export function inWords(one: Activity, now: number, what = ""): string {
  const age = brief(Math.max(0, (now - Date.parse(one.at)) / 1000));
  const named = COUNTED.includes(one.action) ? count(one.count) : cut(target(one), SHOWN);
  const done = `${author(one)} ${PAST[one.action] ?? one.action} ${named}`.trimEnd();
  return `${done}${what === "" ? "," : ` ${what}`} ${age} ago`;
}

function cut(text: string, most = CUT): string {
  const points = Array.from(text);
  return points.length <= most ? text : `${points.slice(0, most - 1).join("")}…`;
}
