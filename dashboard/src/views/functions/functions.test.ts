import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { answerRate, apart, failing, isNow, REQUEST, stepWord, troubles } from "./functions";

type Fn = Schemas["Function"];

const step = (name: string, workers: number | null) =>
  ({ name, workers, spark: workers === null }) as Fn["steps"][number];
const made = (part: Partial<Fn>) =>
  ({ pending: 0, late: 0, max_pending: 10, steps: [step("a", 1), step("b", 2)], ...part }) as Fn;

test("a function whose steps have workers, and that has room, needs no look", () => {
  expect(troubles(made({}))).toEqual([]);
  expect(troubles(made({ steps: [step("a", null), step("b", 1)], pending: 7 }))).toEqual([]);
});

test("steps without a worker are named, unless no step has one", () => {
  expect(troubles(made({ steps: [step("a", 0), step("b", 2), step("c", 0)] }))).toEqual([
    "no worker is alive for a, c",
  ]);
  expect(troubles(made({ steps: [step("a", 0), step("b", null), step("c", 0)] }))).toEqual([
    "no worker is alive",
  ]);
});

test("calls over time and a function without room are reported", () => {
  expect(troubles(made({ late: 1, pending: 10 }))).toEqual([
    "1 call over time, and nobody has said so",
    "full: further calls are refused",
  ]);
  expect(troubles(made({ late: 2, pending: 8 }))).toEqual([
    "2 calls over time, and nobody has said so",
    "nearly full",
  ]);
});

test("a step of a call that was late is not said to have failed", () => {
  expect(stepWord("failed", "failed")).toBe("failed");
  expect(stepWord("failed", "timed out")).toBe("not done in time");
  expect(stepWord("finished", "answered")).toBe("finished");
});

test("a step that nobody works on waits for a worker, as far as there is something to do for it", () => {
  expect(stepWord("no workers", "pending")).toBe("waits for a worker");
  const steps = (["no workers", "working", "no workers"] as const).map(
    (state, place) => ({ name: "abc"[place], state }) as Schemas["CallStep"],
  );
  const streams = new Map(["a", "b", "c"].map((name) => [name, `f.${name}`]));
  const places = [{ stream: "f.b", rows: 2 } as Schemas["Place"]];
  expect(apart(steps, streams, { complete: true, rest: "", places }).map((one) => one.state)).toEqual([
    "finished",
    "working",
    "no workers",
  ]);
  expect(steps.map(isNow)).toEqual([true, true, true]);
  expect(isNow({ state: "waiting" })).toBe(false);
});

test("the share of calls without a result is of all ended calls", () => {
  const counts = (answered: number, failed: number, timed_out: number) =>
    ({ answered, failed, timed_out }) as Schemas["CallCounts"];
  expect(failing(counts(0, 0, 0))).toBeNull();
  expect(failing(counts(6, 1, 1))).toBe(0.25);
});

test("a request is 32 digits", () => {
  expect(REQUEST.test("2f0b6f3c0d7e4a518a9c5d2f8f0f9b11")).toBe(true);
  for (const text of ["", "2F0B6F3C0D7E4A518A9C5D2F8F0F9B11", "2f0b", "2f0b6f3c0d7e4a518a9c5d2f8f0f9b111"])
    expect(REQUEST.test(text)).toBe(false);
});

test("steps of one section are taken apart by where their tuples are", () => {
  const call = (name: string, state: Schemas["CallStep"]["state"]): Schemas["CallStep"] => ({
    name,
    section: 1,
    state,
    since: null,
    gathered: [],
  });
  const steps = [call("a", "working"), call("b", "working"), call("c", "working"), call("d", "waiting")];
  const streams = new Map(["a", "b", "c", "d"].map((name) => [name, `f.${name}`]));
  const at = (stream: string, rows: number | null) => ({ stream, rows }) as Schemas["Place"];
  const states = (complete: boolean | null, rest: string, ...places: Schemas["Place"][]) =>
    apart(steps, streams, { complete, rest, places }).map((one) => [one.state, one.rows]);
  expect(states(true, "", at("f.b", 2), at("f.b", 3))).toEqual([
    ["finished", 0],
    ["working", 5],
    ["working", 0],
    ["waiting", null],
  ]);
  expect(states(true, "", at("f.a", null))[0]).toEqual(["working", null]);
  for (const [complete, rest] of [
    [false, "some are elsewhere"],
    [null, ""],
    [true, "it goes on later"],
  ] as const)
    expect(states(complete, rest, at("f.b", 2)).map(([state]) => state)).toEqual(
      steps.map((one) => one.state),
    );
  expect(apart(steps, streams, undefined).every((one) => one.rows === null)).toBe(true);
});

test("few answers are counted by the minute", () => {
  expect(answerRate(0)).toEqual(["0", "answers/min"]);
  expect(answerRate(0.005)).toEqual(["0.3", "answers/min"]);
  expect(answerRate(12.34)).toEqual(["12.3", "answers/s"]);
  expect(answerRate(null)).toEqual(["–", "answers/s"]);
});
