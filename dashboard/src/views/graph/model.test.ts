import { expect, test } from "vitest";
import { figures, inward, rate, seen, type Edge, type Graph, type Node } from "./model";
import { beside, place } from "./layout";

const NODE: Node = {
  id: "",
  kind: "step",
  name: "",
  steps: [],
  age: null,
  rows: null,
  trees: null,
  tuples: null,
  paused: null,
  rows_behind: 0,
  oldest: null,
  failed: 0,
  expired: 0,
  dead_letters: 0,
  dropped: 0,
};

function node(kind: Node["kind"], name: string, more: Partial<Node> = {}): Node {
  return { ...NODE, id: `${kind}:${name}`, kind, name, ...more };
}

function edge(kind: Edge["kind"], source: string, target: string, more: Partial<Edge> = {}): Edge {
  const id = `${kind} ${source} ${target}`;
  const none = { subscription: null, rows: null, rows_behind: 0, oldest: null, rows_dropped: 0 };
  return { id, kind, source, target, ...none, ...more };
}

function graph(second: number, rows: number): Graph {
  const at = new Date(second * 1000).toISOString();
  const step = node("step", "split", { rows_behind: 7, failed: 2, age: 3 });
  const nodes = [node("spout", "s"), step, node("stream", "lines", { rows })];
  const edges = [
    edge("emits", "spout:s", "stream:lines", { rows }),
    edge("reads", "stream:lines", "step:split", { rows: rows - 7, rows_behind: 7, oldest: 61 }),
  ];
  return { at, failures_since: at, worst: null, nodes, edges };
}

test("a rate covers half a minute, or the time since the reading before", () => {
  let now = seen(graph(0, 100), undefined);
  expect(rate(now, "stream:lines")).toBeNull();
  now = seen(graph(10, 200), now);
  expect(rate(now, "stream:lines")).toBe(10);
  now = seen(graph(35, 1200), now);
  expect(rate(now, "stream:lines")).toBe(40); // what was read first is too long ago
  now = seen(graph(95, 7200), now);
  expect(rate(now, "stream:lines")).toBe(100);
  expect(rate(now, "step:split")).toBeNull();
  // A stream that was made anew counts from zero, and nothing flows back.
  expect(rate(seen(graph(100, 0), now), "stream:lines")).toBe(0);
});

test("a node says what passes and what is wrong, and how it is reached", () => {
  const now = seen(graph(10, 200), seen(graph(0, 100), undefined));
  const [spout, step] = now.graph.nodes as [Node, Node];
  expect(figures(now, spout).map(({ text }) => text)).toEqual(["10 rows/s"]);
  expect(figures(now, step).map(({ text }) => text)).toEqual(["seen 3.0 s ago", "2 failed", "7 behind"]);
  expect(inward(now, step.id).map(({ text }) => text)).toEqual([
    "from lines, 10 rows/s, 7 rows behind, oldest 1 min",
  ]);
});

test("a layout goes from left to right, and the arrow keys along it", async () => {
  const nodes = ["a", "b", "c", "d"].map((name) => node("step", name));
  const edges = ["b d", "c d", "a b", "a c", "d a"].map((ends) => {
    const [from = "", to = ""] = ends.split(" ");
    return edge("tracks", `step:${from}`, `step:${to}`);
  });
  const { nodes: spots, edges: drawn } = await place({ ...graph(0, 0), nodes, edges });
  const [a, b, c, d] = spots.map(({ id }) => id) as [string, string, string, string];
  expect([a, d, [b, c].sort()]).toEqual(["step:a", "step:d", ["step:b", "step:c"]]);
  expect(new Set(spots.map(({ x, y }) => `${x} ${y}`)).size).toBe(4);
  expect(drawn.map(({ path }) => path).filter((path) => !/^M[\d. QL]+$/.test(path))).toEqual([]);
  const walk = (from: string, ...keys: string[]) =>
    keys.reduce<string | null>((at, key) => at && beside(spots, at, key), from);
  expect(walk(b, "ArrowDown")).toBe(c);
  expect(walk(c, "ArrowUp", "ArrowRight")).toBe(d);
  expect(walk(d, "ArrowLeft", "ArrowLeft")).toBe(a);
  expect([walk(a, "End"), walk(d, "Home")]).toEqual([d, a]);
  expect([walk(a, "ArrowLeft"), walk(a, "ArrowUp"), walk(a, "x"), walk("gone", "End")]).toEqual([
    null,
    null,
    null,
    null,
  ]);
});
