import { useInfiniteQuery } from "@tanstack/react-query";
/** One node of the graph: what is known of it, and where to look next. */

import { Link } from "react-router";
import { stuckQuery } from "../../api/queries";
import { compact, count, duration, NOTHING } from "../../lib/format";
import { flow, lately, title, type Node, type Seen } from "./model";
import { useTopology } from "../../hooks/topology";
import { printable } from "../../lib/text";
import { GraphMark } from "./Mark";
import { Pause } from "./Pause";
import { Loaded } from "../../components/Notice";

/** Most stuck places that are named here: all are in the view that it leads to. */
const MOST_NAMED = 5;
/** The end of the names of spouts that only observe: they cannot be paused. */
const OBSERVED = ".observed";

interface Of {
  of: Seen;
  node: Node;
  topology: string;
}

export function GraphNode({ of, node, topology, close }: Of & { close: string }) {
  const base = `/t/${topology}`;
  const name = encodeURIComponent(node.name);
  // Before its first track the ledger knows no spout, and can pause none.
  const spouts = useTopology(topology).data?.spouts ?? [];
  const known = node.paused !== null || spouts.includes(node.name);
  return (
    <section className="graph-node" aria-labelledby="graph-node-title">
      <div className="title">
        <h3 id="graph-node-title">
          <GraphMark kind={node.kind} /> {title(node)} <span className="faint">{node.kind}</span>
        </h3>
        <Link
          to={close}
          replace
          className="close"
          onClick={() => document.querySelector<HTMLElement>(`[data-node="${CSS.escape(node.id)}"]`)?.focus()}
        >
          Close
        </Link>
      </div>
      <dl className="facts">
        {facts(of, node).map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {node.steps.length > 1 && <p className="faint">{count(node.steps.length)} queries run it.</p>}
      {node.kind === "spout" && known && !node.name.endsWith(OBSERVED) && (
        <Pause key={node.name} topology={topology} spout={node.name} paused={node.paused} />
      )}
      {node.rows_behind > 0 && <Stuck of={of} node={node} topology={topology} />}
      <p className="links wrapped">
        {node.kind === "spout" && (
          <>
            <Link to={`${base}/trees?spout=${name}`}>trees in flight</Link>
            <Link to={`${base}/outcomes?spout=${name}`}>failures</Link>
            <Link to={`${base}/dead-letters?spout=${name}`}>dead letters</Link>
          </>
        )}
        {node.kind === "step" && (
          <>
            <Link to={`${base}/outcomes?step=${name}`}>its failures</Link>
            <Link to={`${base}/dead-letters?view=rows&step=%3D${name}`}>its dead letters</Link>
            <a href="#bolts">all bolts</a>
          </>
        )}
        {(node.kind === "stream" || node.kind === "subscription") && <a href="#streams">all streams</a>}
        {node.rows_behind > 0 && <Link to={`${base}/stuck`}>all that lies in streams</Link>}
      </p>
    </section>
  );
}

function facts(of: Seen, node: Node): [string, string][] {
  const [run] = node.steps;
  const span = lately(of.graph);
  const found: [string, string][] = [];
  const add = (shown: boolean, name: string, value: string) => shown && found.push([name, value]);
  const { kind } = node;
  const rows = flow(of, node);
  add(rows !== null && kind !== "stream", "Rows a second", compact(rows));
  add(node.tuples !== null, "Tuples acked", count(node.tuples));
  add(kind !== "spout", "Rows behind", count(node.rows_behind));
  add(kind !== "spout", "Oldest not taken", duration(node.oldest));
  add(kind === "stream", "Rows published", count(node.rows));
  add(node.dropped > 0, "Segments dropped", count(node.dropped));
  add(kind === "spout" || kind === "step", `Failed in ${span}`, count(node.failed));
  add(kind === "spout", `Expired in ${span}`, count(node.expired));
  add(kind === "spout", "Dead letters", count(node.dead_letters));
  if (run !== undefined) {
    add(true, "Application", printable(run.application) || NOTHING);
    add(true, "Query", printable(run.query || run.query_id) || NOTHING);
    add(run.batch !== null, "Last batch", count(run.batch));
    add(run.seconds > 0, "Took", duration(run.seconds));
    add(true, "Last seen", `${duration(node.age)} ago`);
  }
  return found;
}

/** Who has what of it and does not ack it. */
function Stuck({ of, node, topology }: Of) {
  const stuck = useInfiniteQuery(stuckQuery(topology));
  const reads = of.graph.edges
    .filter(({ kind, source, target }) => kind === "reads" && (source === node.id || target === node.id))
    .map(({ source, subscription }) => `${source} ${subscription ?? ""}`);
  const found = (stuck.data?.pages ?? [])
    .flatMap((page) => page.stuck)
    .filter(({ stream, subscription }) => reads.includes(`stream:${stream} ${subscription ?? ""}`))
    .flatMap(({ stream, subscription, shares }) => shares.map((share) => ({ stream, subscription, share })));
  return (
    <Loaded query={stuck} what="who has them">
      <ul className="stuck" aria-label="Stuck places">
        {found.slice(0, MOST_NAMED).map(({ stream, subscription, share }) => (
          <li key={`${stream} ${subscription ?? ""} ${share.taken_by?.reader ?? ""}`}>
            <b>{count(share.rows)} rows</b> of {stream}
            {subscription !== null && ` for ${subscription}`}, the oldest {duration(share.oldest)} ago,{" "}
            {share.taken_by === null ? "taken by nobody" : `taken by ${printable(share.taken_by.text)}`}
          </li>
        ))}
      </ul>
      {found.length > MOST_NAMED && <p className="faint">and {count(found.length - MOST_NAMED)} more</p>}
    </Loaded>
  );
}
