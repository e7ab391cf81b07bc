import { expect, test } from "vitest";
import { append, before, counted, rates, type Sample, type Stats } from "./series";

const instant = (second: number) => new Date(second * 1000).toISOString();

function stats(...seconds: number[]): Stats {
  const one = seconds.map(() => 1);
  const none = seconds.map(() => null);
  const counts = {
    tracked: one,
    emitted: one,
    acked: one,
    failed: one,
    expired: one,
    rejected: one,
    late: one,
    orphaned: one,
    duplicates: one,
  };
  const totals = Object.fromEntries(Object.keys(counts).map((name) => [name, seconds.length]));
  return {
    topology: "words",
    window: "10m",
    step: 1,
    totals: { ...totals, latency: { p50: null, p95: null, p99: null } } as Stats["totals"],
    at: seconds.map(instant),
    seconds: one,
    ...counts,
    pending: one,
    outstanding: one,
    buckets: { nursery: one, middle: one, oldest: one, expiring: one },
    latency: { p50: none, p95: none, p99: none },
  };
}

function sample(second: number, seconds: number | null = 1, acked = 2): Sample {
  return {
    at: instant(second),
    seconds,
    tracked: 2,
    emitted: 6,
    acked,
    failed: 0,
    expired: 0,
    rejected: 0,
    late: 0,
    orphaned: 0,
    duplicates: 0,
    pending: 3,
    outstanding: 4,
    waiting_slabs: 0,
    buckets: { nursery: 3, middle: 0, oldest: 0, expiring: 0 },
    latency: { p50: 0.1, p95: 0.2, p99: 0.3 },
    high_water_use: 0,
    rotation_age: 1,
    backlog: 0,
    health: { ticking: true, severity: "well", since: null, troubles: [], muted: [], paused: [] },
  };
}

test("samples go on where the window ends, and what is too old falls out", () => {
  const after = append(stats(1, 2, 3), [sample(4), sample(5)], 3);
  expect(after?.at).toEqual([3, 4, 5].map(instant));
  expect(after?.acked).toEqual([1, 2, 2]);
  expect(after?.totals.acked).toBe(5);
  expect(after?.buckets.nursery).toEqual([1, 3, 3]);
  expect(after?.latency.p99).toEqual([null, 0.3, 0.3]);
});

test("a sample that the window holds is not counted twice", () => {
  const before = stats(1, 2);
  expect(append(before, [sample(1), sample(2)], 600)).toBe(before);
  expect(append(before, [sample(2), sample(3), sample(3)], 600)?.acked).toEqual([1, 1, 2]);
});

test("a gap is noticed: the window is to be read anew", () => {
  expect(append(stats(1, 2), [sample(4)], 600)).toBeNull();
  expect(append(stats(1, 2), [sample(3), sample(5)], 600)).toBeNull();
  expect(append(stats(1, 2), [sample(3, null)], 600)).toBeNull();
  expect(append(stats(1, 2), [sample(5, 3)], 600)?.at).toHaveLength(3); // one long one is none
});

test("rates are per second, and nothing where it is not known how long a point lasted", () => {
  expect(rates([10, 20, 5], [null, 10, 1])).toEqual([null, 2, 5]);
  expect(counted([10, 20], [null, 10])).toEqual([null, 20]);
});

test("the same hours of a day ago stand at the moments of today, where they are known", () => {
  const old = { at: [100, 110, 130].map(instant), seconds: [null, 10, 5] };
  const day = 86_400;
  const moments = [95, 100, 101, 110, 112, 126, 130, 131].map((second) => second + day);
  expect(before(moments, old, [1, 2, 3], day)).toEqual([null, null, 2, 2, null, 3, 3, null]);
});
