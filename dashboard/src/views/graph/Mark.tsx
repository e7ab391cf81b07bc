/** A shape for each kind of node, beside its name. */

import type { Node } from "./model";

const SHAPES: Record<Node["kind"], string> = {
  spout: "M3 3l9 5-9 5z",
  step: "M3 3h10v10H3z",
  stream: "M2 5h12M2 8h12M2 11h12",
  subscription: "M8 3a5 5 0 1 0 .01 0M8 6v2.5M8 11h.01",
};

export function GraphMark({ kind, size = 14 }: { kind: Node["kind"]; size?: number }) {
  return (
    <svg className={`mark kind-${kind}`} viewBox="0 0 16 16" width={size} height={size} aria-hidden="true">
      <path d={SHAPES[kind]} />
    </svg>
  );
}
