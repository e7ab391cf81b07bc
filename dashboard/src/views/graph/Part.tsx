import type { KeyboardEvent } from "react";
import { Link } from "react-router";
import { figures, inward, title, type Node, type Seen } from "./model";
import { GraphMark } from "./Mark";

/** What a drawing and a list of a graph are given. */
export interface Shown {
  of: Seen;
  /** The id of the node that somebody looks at. */
  chosen: string;
  /** Where a choice of a node leads. */
  to: (id: string) => string;
}

/** A node of the graph as a link: in a list with all that is known of the way to it, in a drawing that is heard only. */
export function GraphPart({
  of,
  node,
  chosen,
  to,
  ...rest
}: Shown & {
  node: Node;
  tabIndex?: number;
  style?: { left: number; top: number; width: number; height: number };
  onFocus?: () => void;
  onKeyDown?: (event: KeyboardEvent) => void;
}) {
  const worst = of.graph.worst?.node === node.id;
  return (
    <Link
      {...rest}
      to={to(node.id)}
      replace
      data-node={node.id}
      className={`part ${node.kind} ${worst ? "worst" : ""} ${node.paused ? "resting" : ""}`}
      aria-current={chosen === node.id ? "true" : undefined}
    >
      <span className="name">
        <GraphMark kind={node.kind} /> <b title={title(node)}>{title(node)}</b>{" "}
        <span className="kind">{node.kind}</span>
        {worst && (
          <span className="flag">
            {" "}
            <span aria-hidden="true">▲</span> <span className="said">needs a look</span>
          </span>
        )}
      </span>
      <span className="figures-line">
        {figures(of, node).map(({ kind, text }) => (
          <span key={kind} className={`colour-${kind}`}>
            {text}
          </span>
        ))}
      </span>
      {inward(of, node.id).map(({ id, text }) => (
        <span key={id} className="from">
          {text}
        </span>
      ))}
    </Link>
  );
}
