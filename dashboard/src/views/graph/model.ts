/** The graph of a topology: its rates, and its words. */

import type { Schemas } from "../../api/client";
import { brief, compact, count, plural } from "../../lib/format";
import { printable } from "../../lib/text";

export type Graph = Schemas["Graph"];
export type Node = Schemas["GraphNode"];
export type Edge = Schemas["GraphEdge"];

/** Milliseconds over which rates are taken, or since the reading before, where that is longer ago. */
const SPAN = 30_000;

/** For how long failures were counted. */
export function lately({ at, failures_since: since }: Graph): string {
  return brief((Date.parse(at) - Date.parse(since)) / 1000);
}

/** Exact counts at a moment, by the id of a node or an edge. */
interface Reading {
  at: number;
  counts: Record<string, number>;
}

/** A graph, and what was counted some seconds before it. */
export interface Seen {
  graph: Graph;
  readings: Reading[];
}

/** A graph that was read, after what was seen before it. */
export function seen(graph: Graph, before: Seen | undefined): Seen {
  const at = Date.parse(graph.at);
  const counts: Record<string, number> = {};
  for (const one of [...graph.nodes, ...graph.edges]) {
    const counted = one.rows ?? ("trees" in one ? (one.trees ?? one.tuples) : null);
    if (counted !== null) counts[one.id] = counted;
  }
  const earlier = (before?.readings ?? []).filter((one) => one.at < at);
  const lately = earlier.filter((one) => one.at >= at - SPAN);
  return { graph, readings: [...(lately.length > 0 ? lately : earlier.slice(-1)), { at, counts }] };
}

/** How many a second a node or an edge passes; null where that is not known, or not yet. */
export function rate({ readings }: Seen, id: string): number | null {
  const last = readings.at(-1);
  const first = readings.find((one) => one.counts[id] !== undefined);
  const now = last?.counts[id];
  const then = first?.counts[id];
  if (!last || !first || now === undefined || then === undefined || last.at <= first.at) return null;
  return (Math.max(0, now - then) * 1000) / (last.at - first.at);
}

function perSecond(value: number | null, of: string): string {
  return value === null ? "" : `${compact(value)} ${of}/s`;
}

/** What a node is called. */
export function title({ kind, name }: Node): string {
  if (kind !== "subscription") return printable(name);
  return name.slice(name.indexOf("/") + 1) || "nobody yet";
}

/** What passes along an edge. */
export function passes(of: Seen, { id }: Edge): string {
  return perSecond(rate(of, id), "rows");
}

/** What waits at an edge, by its age where nobody has taken it. */
export function waiting({ oldest, rows_behind }: Edge): string {
  if (rows_behind === 0) return "";
  return oldest === null ? `${compact(rows_behind)} behind` : `oldest ${brief(oldest)}`;
}

/** How many rows a second go through a node: what a step reads, or what a spout emits. */
export function flow(of: Seen, node: Node): number | null {
  const own = of.graph.edges.filter(
    ({ kind, source, target }) =>
      (kind === "reads" && target === node.id) ||
      (kind === "emits" && source === node.id && node.kind === "spout"),
  );
  const rates = own.map(({ id }) => rate(of, id)).filter((one) => one !== null);
  return rates.length === 0 ? null : rates.reduce((sum, one) => sum + one, 0);
}

interface Figure {
  kind: "passes" | "failed" | "expired" | "waiting";
  text: string;
}

/** What a node says of itself, in a few words each: what passes, then what is wrong. */
export function figures(of: Seen, node: Node): Figure[] {
  const { failed, expired, rows_behind: behind } = node;
  const found: Figure[] = [
    { kind: "passes", text: passing(of, node) },
    { kind: "failed", text: failed > 0 ? `${compact(failed)} failed` : "" },
    { kind: "expired", text: expired > 0 ? `${compact(expired)} expired` : "" },
    { kind: "waiting", text: behind > 0 ? `${compact(behind)} behind` : "" },
  ];
  return found.filter(({ text }) => text !== "");
}

function passing(of: Seen, node: Node): string {
  if (node.paused !== null) return node.paused.whole ? "◌ paused" : "◌ paused in part";
  const seen = node.age === null ? "" : `seen ${brief(node.age)} ago`;
  switch (node.kind) {
    case "spout":
      return perSecond(rate(of, node.id), "trees") || perSecond(flow(of, node), "rows") || seen;
    case "stream":
      return perSecond(rate(of, node.id), "rows") || (node.rows === null ? "" : plural(node.rows, "row"));
    case "step":
      return perSecond(rate(of, node.id), "tuples") || seen;
    case "subscription":
      return "no step is known";
  }
}

/** The edges that lead to a node, in words. */
export function inward(of: Seen, id: string): { id: string; text: string }[] {
  const names = new Map(of.graph.nodes.map((one) => [one.id, title(one)]));
  return of.graph.edges
    .filter(({ target }) => target === id)
    .map((edge) => {
      const behind = edge.rows_behind > 0 ? `${count(edge.rows_behind)} rows behind` : "";
      const oldest = edge.oldest === null ? "" : waiting(edge);
      const parts = [`from ${names.get(edge.source) ?? ""}`, passes(of, edge), behind, oldest];
      return { id: edge.id, text: parts.filter((part) => part !== "").join(", ") };
    });
}
