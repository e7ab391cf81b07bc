/** Marks on charts: what people have done or said, at its time. */

import type { Activity } from "../activity/activity";
import { author, target } from "../activity/activity";
import { count } from "../../lib/format";
import { printable } from "../../lib/text";

export interface ChartMark {
  id: string;
  /** Seconds since 1970. */
  at: number;
  /** A mark that somebody has set, a change of settings, or another write. */
  kind: "mark" | "settings" | "write";
  text: string;
}

const SETTINGS = ["create", "configure", "set-thresholds", "mute", "unmute", "rotate-keys"];
/** Most pixels between the cursor and a mark whose text is shown. */
const NEAR = 6;
/** Most marks whose texts are shown at once. */
export const MOST_NEAR = 4;

/** The marks that an activity makes, the earliest first. What was refused or has changed nothing makes none. */
export function chartMarks(of: readonly Activity[]): ChartMark[] {
  return of
    .filter(({ action, count: changed, done }) => done && (changed !== 0 || kindOf(action) !== "write"))
    .map((one) => ({
      id: one.id,
      at: Date.parse(one.at) / 1000,
      kind: kindOf(one.action),
      text: inWords(one),
    }))
    .sort((a, b) => a.at - b.at);
}

function kindOf(action: string): ChartMark["kind"] {
  return action === "mark" ? "mark" : SETTINGS.includes(action) ? "settings" : "write";
}

/** "deploy 1.4.2, by ann", "ann: replay 495, cause no such shop". */
function inWords(one: Activity): string {
  const by = printable(author(one));
  if (one.action === "mark") return `${printable(one.reason)}, by ${by}`;
  const of = printable(target(one));
  const reason = one.reason === "" ? "" : `: ${printable(one.reason)}`;
  return `${by}: ${one.action}${one.count ? ` ${count(one.count)}` : ""}${of && `, ${of}`}${reason}`;
}

/** The marks that are near a place of a chart, or whose nearest point is the one there; the latest ones. */
export function near(
  marks: readonly ChartMark[],
  place: { left: number; index: number },
  leftOf: (at: number) => number,
  indexOf: (at: number) => number,
): ChartMark[] {
  return marks
    .filter(({ at }) => Math.abs(leftOf(at) - place.left) <= NEAR || indexOf(at) === place.index)
    .slice(-MOST_NEAR);
}

/** The mark before a moment, or after it; undefined where there is none. */
export function next(marks: readonly ChartMark[], at: number, step: 1 | -1): ChartMark | undefined {
  return step > 0 ? marks.find((one) => one.at > at) : marks.filter((one) => one.at < at).at(-1);
}
