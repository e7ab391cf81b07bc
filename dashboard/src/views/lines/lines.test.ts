import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { failedWith, isOfLine, requestPath, sectionOf, since, stands, waiting, within } from "./lines";

// As acker.ledger.slabs.sections makes them: line 1, a group, the request with index 2.
const FIRST = ((3n << 61n) | (1n << 56n) | (12345n << 13n) | (2n << 1n) | 1n).toString();
const SECOND = ((3n << 61n) | (1n << 56n) | (1n << 53n) | (12345n << 13n) | (2n << 1n) | 1n).toString();

function section(part: Partial<Schemas["SectionState"]>): Schemas["SectionState"] {
  return {
    section: 1,
    stream: "rows",
    read: true,
    anchor: FIRST,
    tree: null,
    over: false,
    passed: false,
    released: false,
    released_at: null,
    gathered: [],
    ...part,
  };
}

test("the anchors of a request in its sections follow from each other, without a bit lost", () => {
  expect(within(FIRST, 2)).toBe(SECOND);
  expect(within(SECOND, 1)).toBe(FIRST);
  expect([sectionOf(FIRST), sectionOf(SECOND)]).toEqual([1, 2]);
  expect(requestPath("t", SECOND)).toBe(`/t/t/lines/${FIRST}`);
});

test("an anchor tells whether it is of a line", () => {
  expect(isOfLine(FIRST)).toBe(true);
  for (const other of ["-9223372036854775807", "-1", "1", "4611686018427387905", (3n << 61n).toString()])
    expect(isOfLine(other), other).toBe(false);
});

test("a request is at the first section that is not over", () => {
  const over = { stream: "rows", over: true, passed: true };
  const open = { stream: "rows", over: false, passed: false };
  expect(stands([over, open, open])).toEqual(["done", "now", "later"]);
  expect(stands([open, over, open])).toEqual(["now", "later", "later"]);
  expect(stands([over, { stream: null, over: true, passed: false }])).toEqual(["done", "done"]);
  expect(stands([over, { stream: null, over: false, passed: false }])).toEqual(["done", "now"]);
  expect(stands([{ ...over, passed: false }, open])).toEqual(["group", "later"]);
  expect(stands([])).toEqual([]);
});

test("each section tells since when it is as it is", () => {
  const tree = { tracked_at: "2026-11-25T10:00:00.000Z" } as Schemas["Tree"];
  const gone = "2026-11-25T10:00:05.000Z";
  const sections = [
    section({ over: true, passed: true, tree, released_at: gone }),
    section({ tree }),
    section({ tree }),
  ];
  expect(sections.map((_, place) => since(sections, place))).toEqual([gone, gone, null]);
  expect(since([section({ tree })], 0)).toBe(tree.tracked_at);
  expect(since([section({})], 0)).toBeNull();
  expect(since(sections, 7)).toBeNull();
});

test("rows that wait are added up, by the tasks that they are for", () => {
  const of = (task: number, rows: number, age: number | null) => ({ task, segments: 1, rows, age });
  expect(waiting([])).toEqual({ rows: 0, tasks: "", age: null });
  expect(waiting([of(3, 2, null)])).toEqual({ rows: 2, tasks: "3", age: null });
  expect(waiting([of(0, 2, 1), of(2, 3, 4), of(3, 1, null)])).toEqual({
    rows: 6,
    tasks: "0, 2 and 3",
    age: 4,
  });
  const tasks = (...numbers: number[]) => waiting(numbers.map((task) => of(task, 1, null))).tasks;
  expect(tasks(0, 1)).toBe("0 and 1");
  expect(tasks(...Array.from({ length: 64 }, (_, task) => 63 - task))).toBe("0 to 63");
  expect(tasks(0, 1, 2, 3, 5, 7, 8)).toBe("0 to 3, 5, 7 and 8");
});

test("a section that failed with another one says with which", () => {
  expect(failedWith("in section reach.distinct: in section rows: bad")).toBe("reach.distinct");
  expect(failedWith("bad, in section rows: bad")).toBe("");
});
