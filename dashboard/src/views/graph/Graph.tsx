import { Link, useLocation } from "react-router";
import { GraphDrawing } from "./Drawing";
import { GraphList } from "./List";
import { GraphNode } from "./Node";
import { Loaded } from "../../components/Notice";
import { useGraph, useLayout } from "./useGraph";
import { useNarrow } from "../../hooks/narrow";
import type { Refresh } from "../../hooks/refresh";
import { useUrl } from "../../hooks/url";
import { lately, title, type Seen } from "./model";
import { MOST_DRAWN } from "./layout";

const DEFAULTS = { node: "", graph: "" };

/** What a topology is made of and what passes, with the worst of it in words. */
export function Graph({ topology, refresh }: { topology: string; refresh: Refresh }) {
  const read = useGraph(topology, refresh);
  return (
    <section className="graph" aria-labelledby="graph-title">
      <h2 id="graph-title" className="hidden">
        Graph
      </h2>
      <Loaded query={read} what="the graph">
        {read.data && <Frame of={read.data} topology={topology} />}
      </Loaded>
    </section>
  );
}

function Frame({ of, topology }: { of: Seen; topology: string }) {
  const narrow = useNarrow();
  const layout = useLayout(of.graph);
  const [url, change] = useUrl(DEFAULTS);
  const { search } = useLocation();
  const { nodes } = of.graph;
  const node = nodes.find((one) => one.id === url.node);
  const chosen = node?.id ?? "";
  const to = (id: string) => {
    const next = new URLSearchParams(search);
    if (id === chosen) next.delete("node");
    else next.set("node", id);
    return `?${next.toString()}`;
  };
  const drawable = !narrow && nodes.length <= MOST_DRAWN;
  const drawn = drawable && url.graph !== "list";
  const shown = { of, chosen, to };
  const facts = node && <GraphNode key={chosen} of={of} node={node} topology={topology} close={to(chosen)} />;
  if (nodes.length === 0)
    return <p className="panel nothing">Nothing yet: what spouts, steps and streams do is shown here.</p>;
  return (
    <div className="graph-frame panel">
      <div className="graph-head">
        <Worst {...shown} />
        {nodes.some(({ failed, expired }) => failed + expired > 0) && (
          <span className="faint">failures: of the last {lately(of.graph)}</span>
        )}
        {drawable && (
          <div className="segments" role="group" aria-label="Show the graph as">
            {(["drawing", "list"] as const).map((one) => (
              <button
                key={one}
                type="button"
                aria-pressed={drawn === (one === "drawing")}
                onClick={() => change({ graph: one === "list" ? one : "" }, true)}
              >
                {one === "list" ? "List" : "Drawing"}
              </button>
            ))}
          </div>
        )}
      </div>
      <Loaded query={layout} what="the graph">
        {layout.data &&
          (drawn ? (
            <div className="graph-body">
              <GraphDrawing {...shown} laid={layout.data} />
              {facts}
            </div>
          ) : (
            <GraphList {...shown} order={layout.data.nodes.map(({ id }) => id)}>
              {facts}
            </GraphList>
          ))}
      </Loaded>
    </div>
  );
}

/** Where the worst trouble is, which stands above. It is said once for each node. */
function Worst({ of, chosen, to }: { of: Seen; chosen: string; to: (id: string) => string }) {
  const { nodes, worst } = of.graph;
  const node = nodes.find(({ id }) => id === worst?.node);
  return (
    <>
      <p className={`worst-line ${worst === null ? "faint" : ""}`} data-worst={worst?.node ?? ""}>
        {worst === null ? (
          "No step or stream stands out. Choose one to see more of it."
        ) : (
          <>
            <span aria-hidden="true">▲</span>{" "}
            {worst.node === null || node === undefined ? (
              "It concerns the topology as a whole, not one step."
            ) : (
              <Link to={worst.node === chosen ? "" : to(worst.node)} replace>
                At {node.kind} {title(node)}
              </Link>
            )}
          </>
        )}
      </p>
      <p className="hidden" role="status">
        {node && `${node.kind} ${title(node)} needs a look`}
      </p>
    </>
  );
}
