/** The range of time that charts show: a length, and an end, which is the present unless it is given. */

export interface Range {
  /** As in the URL: "15m", "3h", "7d", "90s", or "all". */
  name: string;
  /** Seconds. */
  span: number;
  /** Unix seconds; null for the present. */
  until: number | null;
}

const DAY = 86_400;
const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: DAY };
/** Seconds that the history is kept, and the least that a range may have. */
export const ALL = 30 * DAY;
const LEAST = 60;

/** Ranges that have a button. */
export const RANGES: readonly (readonly [string, string])[] = [
  ["10m", "10 minutes"],
  ["15m", "15 minutes"],
  ["1h", "1 hour"],
  ["3h", "3 hours"],
  ["12h", "12 hours"],
  ["1d", "1 day"],
  ["7d", "7 days"],
  ["all", "All (30 days)"],
];

/** Ranges that are compared with the one that is shown, by how many seconds they are before it. */
export const BEFORE: Record<string, { shift: number; words: string }> = {
  day: { shift: DAY, words: "a day ago" },
  week: { shift: 7 * DAY, words: "a week ago" },
};

/** The range of the URL's texts; the first button's where they name none. */
export function parseRange(name: string, until: string): Range {
  const [, number = "", unit = ""] = /^(\d{1,7})([smhd])$/.exec(name) ?? [];
  const seconds = name === "all" ? ALL : Number(number) * (UNITS[unit] ?? 0);
  const end = until === "" ? NaN : Date.parse(until) / 1000;
  const known = seconds >= LEAST && seconds <= ALL;
  return {
    name: known ? name : "10m",
    span: known ? seconds : 600,
    until: Number.isFinite(end) ? end : null,
  };
}

/** In the longest unit that says it: 900 is "15m". */
export function spanName(seconds: number): string {
  const whole = Math.min(ALL, Math.max(LEAST, Math.round(seconds)));
  if (whole === ALL) return "all";
  const unit = ["d", "h", "m"].find((one) => whole % (UNITS[one] ?? 1) === 0) ?? "s";
  return `${whole / (UNITS[unit] ?? 1)}${unit}`;
}

/** As the URL has the end of a range; "" for the present. */
export function untilName(until: number | null): string {
  return until === null ? "" : new Date(Math.round(until) * 1000).toISOString().replace(".000", "");
}

/** In words: "10 minutes", "90 s". */
export function rangeWords({ name }: Range): string {
  return RANGES.find(([one]) => one === name)?.[1] ?? name.replace(/(?=[a-z])/, " ");
}

/** The range before this one, or after it; one that would end later than now ends now. */
export function moved({ name, span, until }: Range, step: 1 | -1, now: number): Range {
  const to = (until ?? now) + step * span;
  return { name, span, until: to >= now ? null : to };
}
