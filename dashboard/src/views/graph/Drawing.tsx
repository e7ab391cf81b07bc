import { useLayoutEffect, useRef, useState, type KeyboardEvent } from "react";
import { passes, waiting, type Edge, type Seen } from "./model";
import { beside, type Laid, type Spot } from "./layout";
import { GraphPart, type Shown } from "./Part";

/** Pixels around a node that are to be seen with it. */
const AROUND = 24;

/** The graph as a drawing from left to right. Tab leads to one node, the arrow keys to those around it. */
export function GraphDrawing({ laid, ...shown }: Shown & { laid: Laid }) {
  const { of, chosen } = shown;
  const { nodes, edges, worst } = of.graph;
  const frame = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState("");
  const known = new Map(nodes.map((one) => [one.id, one]));
  const edge = new Map(edges.map((one) => [one.id, one]));
  const stop = [focused, chosen, worst?.node ?? "", laid.nodes[0]?.id ?? ""].find((id) => known.has(id));
  // The node that it begins with: where it is worst then. Later it moves only to what somebody chooses.
  const [first] = useState(worst?.node ?? undefined);
  useLayoutEffect(() => {
    const spot = laid.nodes.find(({ id }) => id === (chosen || first)) ?? laid.nodes[0];
    if (spot && frame.current) show(frame.current, spot);
  }, [laid, chosen, first]);
  const go = (event: KeyboardEvent) => {
    const next = stop === undefined ? null : beside(laid.nodes, stop, event.key);
    if (next === null) return;
    event.preventDefault();
    frame.current?.querySelector<HTMLElement>(`[data-node="${CSS.escape(next)}"]`)?.focus();
  };
  return (
    <div className="graph-scroll" ref={frame}>
      <div
        className={`drawing ${laid.dense ? "dense" : ""}`}
        role="group"
        aria-label="Drawing: the arrow keys lead from node to node"
        style={{ width: laid.width, height: laid.height }}
      >
        <svg width={laid.width} height={laid.height} aria-hidden="true">
          <defs>
            {["arrow", "arrow-worst"].map((id) => (
              <marker
                key={id}
                id={id}
                viewBox="0 0 8 8"
                refX="7"
                refY="4"
                markerWidth="9"
                markerHeight="9"
                markerUnits="userSpaceOnUse"
                orient="auto"
              >
                <path d="M0 0.5L7.5 4L0 7.5z" />
              </marker>
            ))}
          </defs>
          {laid.edges.map(({ id, path }) => (
            <path
              key={id}
              d={path}
              className={`${edge.get(id)?.kind ?? ""} ${worst?.edge === id ? "worst" : ""}`}
              markerEnd={worst?.edge === id ? "url(#arrow-worst)" : "url(#arrow)"}
            />
          ))}
        </svg>
        {laid.edges.map(({ id, x, y }) => {
          const one = edge.get(id);
          return one && <Label key={id} of={of} edge={one} x={x} y={y} />;
        })}
        {laid.nodes.map(({ id, x, y, width, height }) => {
          const node = known.get(id);
          return (
            node && (
              <GraphPart
                key={id}
                {...shown}
                node={node}
                tabIndex={stop === id ? 0 : -1}
                onFocus={() => setFocused(id)}
                onKeyDown={go}
                style={{ left: x - width / 2, top: y - height / 2, width, height }}
              />
            )
          );
        })}
      </div>
    </div>
  );
}

/** The passing rows above an edge, and the waiting rows below it. The node at its end tells screen readers the same. */
function Label({ of, edge, x, y }: { of: Seen; edge: Edge; x: number; y: number }) {
  if (edge.kind !== "reads") return null;
  return (
    <span
      className={`edge-label ${of.graph.worst?.edge === edge.id ? "worst" : ""}`}
      style={{ left: x, top: y }}
      aria-hidden="true"
    >
      <span>{passes(of, edge)}</span>
      <span>{waiting(edge)}</span>
    </span>
  );
}

/** Moves what is drawn so that a spot is seen, if it is not. */
function show(frame: HTMLElement, { x, y, width, height }: Spot) {
  const { clientWidth, clientHeight, scrollLeft, scrollTop } = frame;
  const [wide, high] = [width / 2 + AROUND, height / 2 + AROUND];
  if (x - wide < scrollLeft || x + wide > scrollLeft + clientWidth) frame.scrollLeft = x - clientWidth / 2;
  if (y - high < scrollTop || y + high > scrollTop + clientHeight) frame.scrollTop = y - clientHeight / 2;
}
