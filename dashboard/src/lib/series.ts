/** A window of history, and the samples that come after it. */

import type { Schemas } from "../api/client";

export type Stats = Schemas["Stats"];
export type Sample = Schemas["Sample"];

export const COUNTS = [
  "tracked",
  "emitted",
  "acked",
  "failed",
  "expired",
  "rejected",
  "late",
  "orphaned",
  "duplicates",
] as const;
export const BUCKETS = ["nursery", "middle", "oldest", "expiring"] as const;
export const PERCENTILES = ["p50", "p95", "p99"] as const;

export type Count = (typeof COUNTS)[number];
export type Bucket = (typeof BUCKETS)[number];

/** Most that a sample may begin after the end of the one before without one missing between them. */
const GAP_MS = 500;

/**
 * A window with samples appended; what is older than `span` seconds falls out. Samples that it holds already are
 * passed over. null where some are missing between the window's end and the samples: read the window anew.
 */
export function append(stats: Stats, samples: readonly Sample[], span: number): Stats | null {
  const last = stats.at.at(-1);
  let end = last === undefined ? -Infinity : Date.parse(last);
  const fresh: Sample[] = [];
  for (const sample of samples) {
    const at = Date.parse(sample.at);
    if (at <= end) continue;
    if (sample.seconds === null || at - sample.seconds * 1000 > end + GAP_MS) return null;
    fresh.push(sample);
    end = at;
  }
  if (fresh.length === 0) return stats;
  const from = end - span * 1000;
  const drop = stats.at.findIndex((at) => Date.parse(at) > from);
  const join = <T>(old: readonly T[], take: (sample: Sample) => T): T[] => [
    ...(drop < 0 ? [] : old.slice(drop)),
    ...fresh.map(take),
  ];
  const counts = Object.fromEntries(
    COUNTS.map((name) => [name, join(stats[name], (sample) => sample[name])]),
  ) as Record<Count, number[]>;
  return {
    ...stats,
    ...counts,
    totals: {
      ...stats.totals,
      ...Object.fromEntries(COUNTS.map((name) => [name, counts[name].reduce((sum, one) => sum + one, 0)])),
    },
    at: join(stats.at, (sample) => sample.at),
    seconds: join(stats.seconds, (sample) => sample.seconds),
    pending: join(stats.pending, (sample) => sample.pending),
    outstanding: join(stats.outstanding, (sample) => sample.outstanding),
    buckets: Object.fromEntries(
      BUCKETS.map((name) => [name, join(stats.buckets[name] ?? [], (sample) => sample.buckets[name] ?? 0)]),
    ),
    latency: {
      p50: join(stats.latency.p50, (sample) => sample.latency.p50),
      p95: join(stats.latency.p95, (sample) => sample.latency.p95),
      p99: join(stats.latency.p99, (sample) => sample.latency.p99),
    },
  };
}

/** Counts of points as rates a second; null where a point says not how long it lasted. */
export function rates(counts: readonly number[], seconds: readonly (number | null)[]): (number | null)[] {
  return counts.map((count, index) => {
    const lasted = seconds[index];
    return lasted ? count / lasted : null;
  });
}

/** Counts of points, without the first of all, which holds what was before the history began. */
export function counted(counts: readonly number[], seconds: readonly (number | null)[]): (number | null)[] {
  return counts.map((count, index) => (seconds[index] == null ? null : count));
}

/**
 * Values of a range some seconds before, at the moments of this one: of the point that was under way then, null where
 * there was none.
 */
export function before(
  at: readonly number[],
  stats: Pick<Stats, "at" | "seconds">,
  values: readonly (number | null)[],
  shift: number,
): (number | null)[] {
  const ends = stats.at.map((one) => Date.parse(one) / 1000);
  let index = 0;
  return at.map((moment) => {
    const then = moment - shift;
    while (index < ends.length && (ends[index] ?? 0) < then) index += 1;
    const [end, lasted] = [ends[index], stats.seconds[index]];
    return end !== undefined && lasted != null && then > end - lasted ? (values[index] ?? null) : null;
  });
}
