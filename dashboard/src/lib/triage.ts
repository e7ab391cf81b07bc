/** Triage: the severities of topologies in words, and where each trouble leads. */

import type { Schemas } from "../api/client";
import { compact, count, duration, plural } from "./format";

export type Level = Schemas["Health"]["severity"];
type Trouble = Schemas["Trouble"];

/** From the worst to the best, with their words for so many topologies. */
export const LEVELS: readonly [Level, (number: number) => string][] = [
  ["critical", () => "critical"],
  ["look", (number) => (number === 1 ? "needs a look" : "need a look")],
  ["muted", () => "muted"],
  ["well", () => "well"],
];

/** "3 critical, 19 need a look, 183 well"; without what is zero. */
export function inWords(counts: Schemas["Levels"]): string {
  return LEVELS.filter(([level]) => counts[level] > 0)
    .map(([level, words]) => `${count(counts[level])} ${words(counts[level])}`)
    .join(", ");
}

/** The worst severity of any topology. */
export function worst(counts: Schemas["Levels"]): Level {
  return LEVELS.find(([level]) => counts[level] > 0)?.[0] ?? "well";
}

const PLACES: Partial<Record<Trouble["code"], [string, string]>> = {
  full: ["/trees", "Trees in flight"],
  "nearly-full": ["/trees", "Trees in flight"],
  failing: ["/outcomes?status=failed", "Failures"],
  expiring: ["/outcomes?status=expired", "Expirations"],
  slow: ["/trees", "Trees in flight"],
  "no-spout": ["/outcomes", "Failures"],
  unsent: ["/dead-letters", "Dead letters"],
  "no-bolt": ["/stuck", "In streams"],
  behind: ["/stuck", "In streams"],
  "dead-letters": ["/dead-letters", "Dead letters"],
  "dead-letters-full": ["/dead-letters", "Dead letters"],
};

/** Where to look at a trouble of a topology, and what that is called. */
export function place(topology: string, code: Trouble["code"]): { to: string; words: string } {
  const [path, words] = PLACES[code] ?? ["", "Its page"];
  return { to: `/t/${topology}${path}`, words };
}

/** Parts of the topology's own page. */
const PARTS: Partial<Record<Trouble["code"], [string, string]>> = {
  silent: ["#spouts", "Spouts"],
  unheard: ["#streams", "Streams"],
};

/** What to press at a trouble on the topology's own page: null where all that is to be seen is at its begin. */
export function pressed(
  topology: string,
  { code }: Pick<Trouble, "code">,
): { to: string; words: string } | null {
  if (code in PLACES) return place(topology, code);
  const [to, words] = PARTS[code] ?? [];
  return to === undefined || words === undefined ? null : { to, words };
}

const PERCENT = (value: number) => `${compact(100 * value)}%`;
const TIMEOUTS = (value: number) =>
  value === 1 ? "1 message timeout" : `${compact(value)} message timeouts`;
/** A threshold's value with its unit. */
const UNITS: Record<string, (value: number) => string> = {
  full: PERCENT,
  failed: PERCENT,
  expired: PERCENT,
  latency: TIMEOUTS,
  behind: TIMEOUTS,
  silence: duration,
  silent: (value) => `${compact(value)} times the usual gap`,
  dead_letters: (value) => plural(value, "dead letter"),
  unreadable: (value) => plural(value, "record"),
};

/** What a rule has judged, beside its threshold, which has a name by which it is set. */
export function compared({ threshold, limit, value }: Trouble): string {
  if (threshold === null || limit === null || value === null) return "";
  const words = UNITS[threshold] ?? compact;
  return `Threshold ${threshold}: ${words(limit)}, and it is ${words(value)}. `;
}
