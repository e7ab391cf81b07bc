/** Functions and their calls: what most needs a look, and how what is seen of them is said. */

import type { Kind } from "../../components/Mark";
import type { Schemas } from "../../api/client";
import { compact, NOTHING, plural } from "../../lib/format";

type Fn = Schemas["Function"];
type CallStep = Schemas["CallStep"];

/** A request of a function, as its id is written. */
export const REQUEST = /^[0-9a-f]{32}$/;

/** What needs a look, in words; none where nothing does. */
export function troubles(of: Fn): string[] {
  const found: string[] = [];
  const alone = of.steps.filter((step) => step.workers === 0).map((step) => step.name);
  if (alone.length === of.steps.filter((step) => step.workers !== null).length && alone.length > 0)
    found.push("no worker is alive");
  else if (alone.length > 0) found.push(`no worker is alive for ${alone.join(", ")}`);
  if (of.late > 0) found.push(`${plural(of.late, "call")} over time, and nobody has said so`);
  if (of.pending >= of.max_pending) found.push("full: further calls are refused");
  else if (of.pending >= 0.8 * of.max_pending) found.push("nearly full");
  return found;
}

export const CALL_KINDS: Record<Schemas["CallHead"]["status"], Kind> = {
  pending: "pending",
  answered: "acked",
  failed: "failed",
  "timed out": "expired",
};

export const STEP_KINDS: Record<Schemas["CallStep"]["state"], Kind> = {
  finished: "finished",
  working: "pending",
  "no workers": "expired",
  waiting: "waiting",
  failed: "failed",
  dropped: "rejected",
};

/** Whether what is to be done next for a call is to be done by a step, be it at work or not. */
export function isNow(step: Pick<CallStep, "state">): boolean {
  return step.state === "working" || step.state === "no workers";
}

/**
 * Steps of a call. Steps whose section is under way are distinguished by where the tuples of their section are: a step
 * is done once nothing is left for it, or for one before it. rows: what is left for it; null where that is not known.
 */
export function apart(
  steps: readonly CallStep[],
  streams: ReadonlyMap<string, string>,
  why: Pick<Schemas["Why"], "complete" | "rest" | "places"> | undefined,
): (CallStep & { rows: number | null })[] {
  let left = 0;
  return steps.map((step) => {
    if (!isNow(step) || !why?.complete || why.rest !== "") return { ...step, rows: null };
    const here = why.places.filter((place) => place.stream === streams.get(step.name));
    left += here.length;
    const rows = here.some((place) => place.rows === null)
      ? null
      : here.reduce((sum, place) => sum + (place.rows ?? 0), 0);
    return { ...step, rows, state: left === 0 ? "finished" : step.state };
  });
}

/** Answers in a time that suits their rate. */
export function answerRate(perSecond: number | null): [rate: string, unit: string] {
  if (perSecond === null) return [NOTHING, "answers/s"];
  return perSecond < 1 ? [compact(perSecond * 60), "answers/min"] : [compact(perSecond), "answers/s"];
}

/** What a step's state is called, on the page of a call that ended so. */
export function stepWord(state: Schemas["CallStep"]["state"], status: Schemas["CallHead"]["status"]): string {
  if (state === "working") return "at work";
  if (state === "no workers") return "waits for a worker";
  if (state === "waiting") return "waits for all of it";
  if (state === "failed" && status === "timed out") return "not done in time";
  if (state === "dropped") return "ended with the call";
  return state;
}

/** The share of the calls of a time that had no result; null without any call. */
export function failing(of: Schemas["CallCounts"]): number | null {
  const calls = of.answered + of.failed + of.timed_out;
  return calls === 0 ? null : (of.failed + of.timed_out) / calls;
}

export function callPath(name: string, request: string): string {
  return `/functions/${name}/${request}`;
}
