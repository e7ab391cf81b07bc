import { expect, test } from "vitest";
import { toCsv } from "./export";

test("CSV is quoted where it must be, no cell is a formula, and ids keep all digits", () => {
  const text = toCsv([
    { id: "-9223372036854775808", reason: 'a "b", c\nd', age: 1.5, row: { x: 1 } },
    { id: "007", reason: "=HYPERLINK(1)", age: null, extra: "@x" },
  ]);
  expect(text).toBe(
    "id,reason,age,row,extra\r\n" +
      '\'-9223372036854775808,"a ""b"", c\nd",1.5,"{""x"":1}",\r\n' +
      "'007,'=HYPERLINK(1),,,'@x\r\n",
  );
});

test("no rows are an empty table", () => {
  expect(toCsv([])).toBe("\r\n");
});
