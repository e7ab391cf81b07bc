import { expect, test } from "vitest";
import {
  addUp,
  anchorIn,
  literally,
  messageIdQuery,
  messageIdText,
  type FoundAttempt,
  type Records,
} from "./records";

const T = (second: number) => `2026-11-23T10:00:0${second}.000Z`;

function attempt(part: Partial<FoundAttempt>): FoundAttempt {
  return {
    anchor: null,
    number: null,
    state: "failed",
    reason: "",
    step: "",
    batch: null,
    tracked_at: null,
    at: null,
    ...part,
  };
}

function answer(looked: number, cursor: string | null, ...attempts: FoundAttempt[]): Records {
  const records = [{ spout: "s", attempts, dead_letters: [] }];
  return { message_id: "m", message_id_base64: "bQ==", records, looked, of: 9, cursor };
}

test("answers are added up, each attempt once and in order", () => {
  const second = attempt({ anchor: "3", number: 2, state: "pending", tracked_at: T(2) });
  const first = attempt({ anchor: "1", tracked_at: T(0), at: T(1) });
  const told = attempt({ number: 1, at: T(1), reason: "bad" });
  const over = { ...second, number: null, state: "acked" as const };
  expect(addUp([answer(2, "a", second, told), answer(5, "b", first), answer(9, null, over)])).toEqual({
    records: [
      {
        spout: "s",
        attempts: [
          { ...first, number: 1, reason: "bad" },
          { ...over, number: 2 },
        ],
        dead_letters: [],
      },
    ],
    looked: 9,
    of: 9,
    cursor: null,
  });
});

test("rows of one message id that end at one moment are attempts of their own", () => {
  const trees = ["1", "3"].map((anchor) => attempt({ anchor, tracked_at: T(0), at: T(1) }));
  const told = attempt({ number: 1, at: T(1), reason: "bad" });
  const named = (...attempts: FoundAttempt[]) =>
    addUp([answer(9, null, ...attempts)]).records[0]?.attempts.map(({ anchor, number }) => [anchor, number]);
  expect(named(...trees, told, told)).toEqual([
    ["1", 1],
    ["3", 1],
  ]);
  expect(named(...trees, told, { ...told, number: 2 })).toEqual([
    ["1", null],
    ["3", null],
  ]);
  expect(named(...trees.slice(1), told, { ...told, number: 2 })).toEqual([
    ["3", null],
    [null, 2],
  ]);
});

test("an anchor is an odd number of 64 bits", () => {
  expect(anchorIn(" -9223372036854775807 ")).toBe("-9223372036854775807");
  for (const text of ["", "4", "1.5", "9223372036854775809", "order 7", "--1", "0x1"])
    expect(anchorIn(text)).toBeNull();
});

test("a message id is asked for as it was given", () => {
  expect(messageIdQuery(" a b")).toEqual({ message_id: " a b" });
  for (const [text, bytes] of [
    ["plain", "cGxhaW4="],
    ["", ""],
    ["base64:x", "YmFzZTY0Ong="],
    [null, "/w=="],
  ] as const) {
    const query = messageIdQuery(messageIdText({ message_id: text, message_id_base64: bytes }));
    expect([{ message_id: text }, { message_id_base64: bytes }]).toContainEqual(query);
  }
});

test("a message id of several lines is asked for by its bytes, which stay whole in a box", () => {
  for (const [text, bytes] of [
    ["a\nb", "YQpi"],
    ["\r", "DQ=="],
  ] as const)
    expect(messageIdText({ message_id: text, message_id_base64: bytes })).toBe(`base64:${bytes}`);
});

test("of a filter that has the text alone the bytes are made", () => {
  for (const [text, bytes] of [
    ["a\nb", "YQpi"],
    ["base64:x", "YmFzZTY0Ong="],
    ["", ""],
  ] as const)
    expect(messageIdText({ message_id: text, message_id_base64: "" })).toBe(`base64:${bytes}`);
});

test("a text that begins as bytes do may be a message id itself", () => {
  expect(literally("base64:AAé")).toBe("base64:YmFzZTY0OkFBw6k=");
  expect(literally(" base64:")).toBe("base64:IGJhc2U2NDo=");
  expect(literally("order base64:AA")).toBeNull();
});
