import { describe, expect, it } from "vitest";
import type { Activity } from "../activity/activity";
import { chartMarks, near, next } from "./marks";

function write(at: string, action: string, more: Partial<Activity> = {}): Activity {
  return {
    id: at,
    at: `2026-11-27T03:${at}Z`,
    began: `2026-11-27T03:${at}Z`,
    who: "ann",
    proved: true,
    via: "rest",
    action,
    target: {},
    count: 0,
    calls: 1,
    reason: "",
    result: "",
    done: true,
    ...more,
  };
}

const MARKS = chartMarks([
  write("25:00", "pause-spout", { count: null, target: { spout: "lines" } }),
  write("20:00", "replay", { count: 495, target: { cause: "no such shop" }, reason: "mended" }),
  write("15:00", "replay"),
  write("12:00", "remove", { done: false, count: 1 }),
  write("10:00", "configure", { target: { downtime: "60" } }),
  write("05:00", "mark", { reason: "deploy\u202e 1.4.2", who: "ci@host", proved: false }),
]);

describe("marks", () => {
  it("are what was done, in words, the earliest first", () => {
    expect(MARKS.map(({ kind, text }) => [kind, text])).toEqual([
      ["mark", "deploy\\u{202e} 1.4.2, by ci@host (not proved)"],
      ["settings", "ann: configure, downtime 60"],
      ["write", "ann: replay 495, cause no such shop: mended"],
      ["write", "ann: pause-spout, spout lines"],
    ]);
  });

  it("are near where the cursor is, or where their nearest point is", () => {
    const [deploy, configure, replay] = MARKS;
    const begin = deploy?.at ?? 0;
    const leftOf = (at: number) => (at - begin) / 10; // a pixel is ten seconds
    const indexOf = (at: number) => Math.floor((at - begin) / 600);
    expect(near(MARKS, { left: 33, index: 5 }, leftOf, indexOf)).toEqual([configure]);
    expect(near(MARKS, { left: 50, index: 0 }, leftOf, indexOf)).toEqual([deploy, configure]);
    expect(near(MARKS, { left: 88, index: 1 }, leftOf, indexOf)).toEqual([replay]);
  });

  it("follow each other", () => {
    const [deploy, configure] = MARKS;
    expect(next(MARKS, deploy?.at ?? 0, 1)).toBe(configure);
    expect(next(MARKS, configure?.at ?? 0, -1)).toBe(deploy);
    expect(next(MARKS, deploy?.at ?? 0, -1)).toBeUndefined();
  });
});
