import type { ReactNode } from "react";
import { GraphPart, type Shown } from "./Part";

/** The graph as a list, in the order in which it would be drawn. The facts of the chosen node follow it. */
export function GraphList({ order, children, ...shown }: Shown & { order: string[]; children: ReactNode }) {
  const known = new Map(shown.of.graph.nodes.map((one) => [one.id, one]));
  return (
    <ol className="parts-list">
      {order.map((id) => {
        const node = known.get(id);
        return (
          node && (
            <li key={id}>
              <GraphPart {...shown} node={node} />
              {shown.chosen === id && children}
            </li>
          )
        );
      })}
    </ol>
  );
}
