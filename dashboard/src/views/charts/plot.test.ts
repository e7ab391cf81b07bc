import { expect, test, vi } from "vitest";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => undefined }));

test("each line of a stack stands on the sum of those before it", async () => {
  const { stack } = await import("./plot");
  expect(
    stack([
      [1, 2, null],
      [3, 0, 1],
      [1, 1, 1],
    ]),
  ).toEqual([
    [1, 2, null],
    [4, 2, 1],
    [5, 3, 2],
  ]);
});
