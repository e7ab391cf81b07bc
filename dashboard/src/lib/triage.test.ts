import { expect, test } from "vitest";
import { inWords, place, pressed, worst } from "./triage";

test("the counts are words, the worst first, without what is zero", () => {
  expect(inWords({ critical: 3, look: 19, muted: 1, well: 1183 })).toBe(
    "3 critical, 19 need a look, 1 muted, 1,183 well",
  );
  expect(inWords({ critical: 0, look: 1, muted: 0, well: 0 })).toBe("1 needs a look");
  expect(worst({ critical: 0, look: 1, muted: 4, well: 9 })).toBe("look");
  expect(worst({ critical: 0, look: 0, muted: 0, well: 0 })).toBe("well");
});

test("a trouble leads to where it is seen", () => {
  expect(place("words", "failing")).toEqual({ to: "/t/words/outcomes?status=failed", words: "Failures" });
  expect(place("words", "silent")).toEqual({ to: "/t/words", words: "Its page" });
  expect(pressed("words", { code: "no-ticks" })).toBeNull();
  expect(pressed("words", { code: "silent" })).toEqual({ to: "#spouts", words: "Spouts" });
  expect(pressed("words", { code: "unheard" })).toEqual({ to: "#streams", words: "Streams" });
  expect(pressed("words", { code: "slow" })?.to).toBe("/t/words/trees");
});
