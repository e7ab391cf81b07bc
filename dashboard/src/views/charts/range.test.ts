import { describe, expect, it } from "vitest";
import { moved, parseRange, rangeWords, spanName, untilName } from "./range";

describe("a range", () => {
  it("is read from the URL, and is ten minutes where that names none", () => {
    expect(parseRange("15m", "")).toEqual({ name: "15m", span: 900, until: null });
    expect(parseRange("90s", "2026-11-27T03:00:00Z")).toEqual({ name: "90s", span: 90, until: 1795748400 });
    expect(parseRange("all", "never").span).toBe(30 * 86_400);
    for (const wrong of ["", "x", "0m", "59s", "31d", "-1d", "1w"])
      expect(parseRange(wrong, ""), wrong).toEqual({ name: "10m", span: 600, until: null });
  });

  it("is written so that it is read as it was", () => {
    for (const name of ["90s", "15m", "3h", "7d", "all"])
      expect(spanName(parseRange(name, "").span)).toBe(name);
    expect(spanName(1)).toBe("1m");
    expect(spanName(1e9)).toBe("all");
    expect(untilName(1795748400.4)).toBe("2026-11-27T03:00:00Z");
    expect(untilName(null)).toBe("");
    expect(rangeWords(parseRange("1h", ""))).toBe("1 hour");
    expect(rangeWords(parseRange("45m", ""))).toBe("45 m");
  });

  it("moves by its own length, and never beyond the present", () => {
    const hour = parseRange("1h", "");
    const before = moved(hour, -1, 10_000);
    expect(before.until).toBe(6400);
    expect(moved(before, -1, 10_000).until).toBe(2800);
    expect(moved(before, 1, 10_000).until).toBeNull();
  });
});
