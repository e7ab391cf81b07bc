import { expect, test } from "vitest";
import { compared, inWords, place, pressed, worst } from "./triage";

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

test("a threshold stands beside the value, both in its unit", () => {
  const judged = (threshold: string | null, limit: number, value: number) =>
    compared({ code: "slow", severity: "look", text: "", advice: "", since: null, threshold, limit, value });
  expect(judged("failed", 0.1, 0.29)).toBe("Threshold failed: 10%, and it is 29%. ");
  expect(judged("behind", 1, 46.61)).toBe(
    "Threshold behind: 1 message timeout, and it is 46.6 message timeouts. ",
  );
  expect(judged("silence", 120, 2796.9)).toBe("Threshold silence: 2 min 0 s, and it is 46 min 37 s. ");
  expect(judged("silent", 5, 912)).toBe(
    "Threshold silent: 5 times the usual gap, and it is 912 times the usual gap. ",
  );
  expect(judged("dead_letters", 1, 3)).toBe(
    "Threshold dead_letters: 1 dead letter, and it is 3 dead letters. ",
  );
  expect(judged(null, 1, 3)).toBe("");
});
