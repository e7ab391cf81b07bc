import { expect, test } from "vitest";
import { brief, compact, count, duration, percent, plural, stepBatch } from "./format";

test("durations come in the unit that suits them", () => {
  const shown = [null, 0, 0.0004, 0.0123, 0.5, 0.9999, 1, 9.96, 59.4, 59.96, 61, 3599, 7260, 200_000].map(
    duration,
  );
  expect(shown).toEqual([
    "–",
    "0 s",
    "< 1 ms",
    "12.3 ms",
    "500 ms",
    "1.0 s",
    "1.0 s",
    "10 s",
    "59 s",
    "60 s",
    "1 min 1 s",
    "59 min 59 s",
    "2 h 1 min",
    "2 d 7 h",
  ]);
});

test("a duration in one unit is cut and never longer", () => {
  expect([0.0004, 0.5, 59, 60, 119, 7260, 200_000].map(brief)).toEqual([
    "< 1 ms",
    "500 ms",
    "59 s",
    "1 min",
    "1 min",
    "2 h",
    "2 d",
  ]);
});

test("numbers are never more exact than they are", () => {
  expect([null, 0, 12.345, 1234, 1_234_567, 0.001].map(compact)).toEqual([
    "–",
    "0",
    "12.3",
    "1.23K",
    "1.23M",
    "1e-3",
  ]);
  expect(count(1_234_567)).toBe("1,234,567");
  expect([0, 0.001, 0.799, 1].map(percent)).toEqual(["0 %", "< 1 %", "79 %", "100 %"]);
  expect([plural(1, "tree"), plural(2, "tree")]).toEqual(["1 tree", "2 trees"]);
});

test("a step is named with its batch, where that is known", () => {
  expect(stepBatch({ step: "price", batch: 1234 })).toBe("price, batch 1,234");
  expect(stepBatch({ step: "price", batch: 0 })).toBe("price, batch 0");
  expect(stepBatch({ step: "price", batch: null })).toBe("price");
  expect(stepBatch({ step: "", batch: 3 })).toBe("");
});
