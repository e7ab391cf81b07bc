/** Where the nodes and edges of a graph are drawn. */

import { title, type Graph, type Node } from "./model";

/** Most nodes that are drawn: of more a drawing says little and takes long. */
export const MOST_DRAWN = 250;

/** From so many nodes on they are lower, with less in them. */
const MANY = 40;

/** The width of each kind of node, in pixels. */
const WIDTH: Record<Node["kind"], number> = { spout: 152, step: 152, stream: 126, subscription: 152 };
/** Pixels of a letter of a name at most, of a wide one, and of what stands beside a name on its two lines. */
const LETTER = 8.4;
const WIDE_LETTER = 13.5;
const BESIDE = 60;
/** Pixels of a name that stands on one line; a longer one has two. */
const ONE_LINE = 130;
/** Of what is read, which has words above and below its line. */
const LABEL = { width: 76, height: 44 };

interface Point {
  x: number;
  y: number;
}

/** A node, and its middle. */
export interface Spot extends Point {
  id: string;
  width: number;
  height: number;
}

export interface Laid {
  width: number;
  height: number;
  dense: boolean;
  /** From left to right, and from above. */
  nodes: Spot[];
  edges: { id: string; path: string; x: number; y: number }[];
}

/** What a layout depends on: figures move nothing. */
export function shape({ nodes, edges }: Graph): string {
  return JSON.stringify([nodes.map(({ id }) => id), edges.map(({ id }) => id)]);
}

/** Where each node and each edge is drawn; of very many nodes only their order, and of none nothing. */
export async function place({ nodes, edges }: Graph): Promise<Laid> {
  const dense = nodes.length >= MANY;
  const height = dense ? 64 : 86;
  const spots = nodes.map((node) => ({ id: node.id, x: 0, y: 0, width: wide(node), height }));
  if (nodes.length === 0 || nodes.length > MOST_DRAWN)
    return { width: 0, height: 0, dense, nodes: spots, edges: [] };
  const dagre = await import("@dagrejs/dagre");
  const drawing = new dagre.Graph({ multigraph: true });
  const nodesep = dense ? 12 : 18;
  drawing.setGraph({ rankdir: "LR", nodesep, ranksep: 24, edgesep: 12, marginx: 8, marginy: 16 });
  drawing.setDefaultEdgeLabel(() => ({}));
  for (const { id, width } of spots) drawing.setNode(id, { width, height });
  for (const { id, kind, source, target } of edges)
    drawing.setEdge(source, target, kind === "reads" ? { ...LABEL, labelpos: "c" } : {}, id);
  dagre.layout(drawing);
  const whole = drawing.graph() as { width?: number; height?: number };
  const placed = new Map(spots.map((spot) => [spot.id, { ...spot, ...(drawing.node(spot.id) as Point) }]));
  return {
    width: whole.width ?? 0,
    height: whole.height ?? 0,
    dense,
    nodes: [...placed.values()].sort((one, other) => one.x - other.x || one.y - other.y),
    edges: edges.map(({ id, source, target }) => {
      const {
        points,
        x = 0,
        y = 0,
      } = drawing.edge(source, target, id) as Partial<Point> & { points: Point[] };
      return { id, path: smooth(between(placed.get(source), placed.get(target), points)), x, y };
    }),
  };
}

/** The width of a node: its name is whole, because names that begin alike are told apart by their ends. */
function wide(node: Node): number {
  const name = title(node);
  const widest = (name.match(/[A-Zmw]/g) ?? []).length;
  const length = widest * WIDE_LETTER + (name.length - widest) * LETTER;
  return Math.max(WIDTH[node.kind], Math.ceil(length <= ONE_LINE ? length : length / 2) + BESIDE);
}

/** The points of an edge that begins and ends in the middle of a side, unless it leads back. */
function between(source: Spot | undefined, target: Spot | undefined, points: Point[]): Point[] {
  if (!source || !target || source.x >= target.x) return points;
  const start = { x: source.x + source.width / 2, y: source.y };
  const end = { x: target.x - target.width / 2, y: target.y };
  return [start, ...points.slice(1, -1), end];
}

/** A line through the middle of each stretch, bent at its corners. */
function smooth(points: readonly Point[]): string {
  const [first, ...rest] = points;
  const last = rest.at(-1);
  if (!first || !last) return "";
  const at = ({ x, y }: Point) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const middle = (one: Point, other: Point) => ({ x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 });
  const bends = rest.slice(0, -1).map((point, index) => {
    const next = rest[index + 1] ?? last;
    return `Q${at(point)} ${at(index === rest.length - 2 ? next : middle(point, next))}`;
  });
  return [`M${at(first)}`, ...bends, `L${at(last)}`].join(" ");
}

/** Where a key leads from a node: to the nearest in the column beside it, or above or below in its own. */
export function beside(nodes: readonly Spot[], from: string, key: string): string | null {
  const start = nodes.find(({ id }) => id === from);
  if (start === undefined) return null;
  if (key === "Home") return nodes[0]?.id ?? null;
  if (key === "End") return nodes.at(-1)?.id ?? null;
  const across = { ArrowLeft: -1, ArrowRight: 1 }[key];
  const along = { ArrowUp: -1, ArrowDown: 1 }[key];
  const nearest = (found: readonly Spot[], far: (spot: Spot) => number) =>
    found.reduce<Spot | null>((best, one) => (best === null || far(one) < far(best) ? one : best), null);
  const down = ({ y }: Spot) => Math.abs(y - start.y);
  if (along !== undefined)
    return (
      nearest(
        nodes.filter(({ x, y }) => x === start.x && (y - start.y) * along > 0),
        down,
      )?.id ?? null
    );
  if (across === undefined) return null;
  const ahead = nodes.filter(({ x }) => (x - start.x) * across > 0);
  const column = nearest(ahead, ({ x }) => Math.abs(x - start.x))?.x;
  return (
    nearest(
      ahead.filter(({ x }) => x === column),
      down,
    )?.id ?? null
  );
}
