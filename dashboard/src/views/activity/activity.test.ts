import { describe, expect, it } from "vitest";
import type { Group } from "../dead-letters/filter";
import { author, inWords, isOfGroup, latest, result, target, type Activity } from "./activity";

const NOW = Date.parse("2026-11-27T03:15:00Z");

function write(more: Partial<Activity> = {}): Activity {
  return {
    id: "1-0",
    at: "2026-11-27T03:12:00.000Z",
    began: "2026-11-27T03:11:00.000Z",
    who: "ann",
    proved: true,
    via: "rest",
    action: "replay",
    target: { cause: "no such shop", step: "price" },
    count: 495,
    calls: 1,
    reason: "",
    result: "",
    done: true,
    ...more,
  };
}

function group(more: Partial<Group> = {}): Group {
  return {
    cause: "no such shop",
    reason: "no such shop",
    step: "price",
    status: "failed",
    count: 3,
    oldest: "",
    newest: "",
    ...more,
  };
}

describe("activity", () => {
  it("says in a sentence who has done what, and when", () => {
    expect(inWords(write(), NOW, "of this cause")).toBe("ann replayed 495 of this cause 3 min ago");
    expect(inWords(write(), NOW)).toBe("ann replayed 495, 3 min ago");
    expect(inWords(write({ action: "pause-spout", count: null, target: { spout: "lines" } }), NOW)).toBe(
      "ann paused spout lines, 3 min ago",
    );
    expect(author(write({ who: "bob@host", proved: false }))).toBe("bob@host (not proved)");
    expect(target(write())).toBe("cause no such shop, step price");
    expect(result(write())).toBe("done");
    expect(result(write({ done: false, result: "2 trees in flight" }))).toBe("not done: 2 trees in flight");
  });

  it("finds what was done last to a group of dead letters", () => {
    const other = write({ target: { cause: "no such sku" } });
    const nothing = write({ count: 0 });
    const found = [other, nothing, write({ id: "2-0" }), write()];
    expect(latest(found, ["replay", "discard"], (one) => isOfGroup(one, group()))?.id).toBe("2-0");
    expect(latest(found, ["discard"], (one) => isOfGroup(one, group()))).toBeUndefined();
    expect(isOfGroup(write({ target: { cause: "no such shop" } }), group())).toBe(true);
    expect(isOfGroup(write(), group({ step: "tax" }))).toBe(false);
    expect(isOfGroup(write({ target: {} }), group())).toBe(false);
  });

  it("knows a cause that the service has cut", () => {
    const long = "x".repeat(400);
    const kept = write({ target: { cause: `${"x".repeat(299)}…` } });
    expect(isOfGroup(kept, group({ cause: long }))).toBe(true);
    expect(isOfGroup(kept, group({ cause: "x".repeat(299) }))).toBe(false);
  });
});
