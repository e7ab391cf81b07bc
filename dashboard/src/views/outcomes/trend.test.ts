import { expect, test } from "vitest";
import { trend } from "./trend";

test("a count rises or falls where its halves differ by more than a quarter", () => {
  expect(trend([0, 0, 0, 5])).toEqual({ early: 0, late: 5, words: "rising" });
  expect(trend([5, 5, 0, 0]).words).toBe("falling");
  expect(trend([4, 0, 5, 0]).words).toBe("steady");
  expect(trend([0, 0]).words).toBe("none");
});
