import { describe, expect, it } from "vitest";
import { inPieces } from "./pieces";

describe("pieces", () => {
  it("are done one after the other, and say how far it is", async () => {
    const seen: number[] = [];
    const once = (next: number) => Promise.resolve({ done: 2, next: next < 3 ? next + 1 : null });
    const found = await inPieces(
      1,
      once,
      (done) => seen.push(done),
      () => false,
    );
    expect(found).toEqual({ done: 6, stopped: false });
    expect(seen).toEqual([2, 4, 6]);
  });

  it("end after the one at hand when they are stopped", async () => {
    let done = 0;
    const once = (next: number) => Promise.resolve({ done: 5, next: next + 1 });
    const found = await inPieces(
      1,
      once,
      (now) => (done = now),
      () => done >= 10,
    );
    expect(found).toEqual({ done: 10, stopped: true });
  });
});
