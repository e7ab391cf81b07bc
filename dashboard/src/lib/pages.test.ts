import { expect, test, vi } from "vitest";
import { collect, type Page } from "./pages";

function pages(...all: number[][]) {
  return vi.fn((cursor: string | undefined, limit: number): Promise<Page<number>> => {
    const index = Number(cursor ?? 0);
    const last = index === all.length - 1;
    return Promise.resolve({
      rows: (all[index] ?? []).slice(0, limit),
      cursor: last ? null : String(index + 1),
    });
  });
}

test("empty pages are passed over until there is enough", async () => {
  const read = pages([], [1], [], [2, 3], [4]);
  expect(await collect(read, 3)).toEqual({ rows: [1, 2, 3], cursor: "4" });
  expect(read.mock.calls.map(([, limit]) => limit)).toEqual([3, 3, 2, 2]);
  expect(await collect(read, 9, "3")).toEqual({ rows: [2, 3, 4], cursor: null });
});

test("a search that finds nothing ends, and says where to go on", async () => {
  const read = pages(...Array.from({ length: 99 }, () => []));
  expect(await collect(read, 5, undefined, 7)).toEqual({ rows: [], cursor: "7" });
  expect(read).toHaveBeenCalledTimes(7);
});
