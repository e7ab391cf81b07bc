import { useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";
import type { Schemas } from "../../api/client";
import { topologyQuery } from "../../api/queries";
import { HealthBadge, Troubles, Vitals } from "../../components/Health";
import { Loaded } from "../../components/Notice";
import { RefreshControl } from "../../components/page/RefreshControl";
import { useRefresh } from "../../hooks/refresh";
import { compact, count, duration } from "../../lib/format";
import { History } from "../charts/History";
import { Graph } from "../graph/Graph";
import { Headline } from "./Headline";
import { Parts } from "./Parts";
import { Removal } from "./Removal";

/** A topology: its figures over a window, charts, shards, spouts and bolts. */
export function Topology() {
  const { topology = "" } = useParams();
  const refresh = useRefresh();
  const state = useQuery({
    ...topologyQuery(topology),
    refetchInterval: refresh.interval,
  });
  const rest = state.data && behindTheWorst(state.data.health);
  return (
    <>
      <div className="title">
        <h1>{topology}</h1>
        {state.data && <HealthBadge health={state.data.health} known={state.error === null} />}
        <RefreshControl refresh={refresh} updatedAt={state.dataUpdatedAt} error={state.error} />
      </div>
      {state.data && <Headline topology={topology} health={state.data.health} known={state.error === null} />}
      {/* Its room, so that what comes sooner does not move away. */}
      {state.data === undefined && state.errorUpdatedAt === 0 && <div className="headline" />}
      {(state.data !== undefined || state.errorUpdatedAt === 0) && (
        <Graph topology={topology} refresh={refresh} />
      )}
      <Loaded query={state} what="the topology">
        {state.data && <Summary of={state.data} known={state.error === null} />}
      </Loaded>
      {(state.data !== undefined || state.errorUpdatedAt === 0) && (
        <History topology={topology} refresh={refresh} />
      )}
      {state.data && <Parts of={state.data} />}
      {/* At the end, so that nothing moves when one comes up. */}
      {rest && rest.troubles.length + rest.muted.length > 0 && (
        <section id="health" aria-labelledby="health-title">
          <h2 id="health-title">What else needs a look</h2>
          <Troubles health={rest} />
        </section>
      )}
      {state.data && <Removal of={state.data} />}
    </>
  );
}

/** What a headline does not say: all but the worst trouble, or all that is muted but one. */
function behindTheWorst({ troubles, muted }: Schemas["Health"]) {
  return { troubles: troubles.slice(1), muted: troubles.length > 0 ? muted : muted.slice(1) };
}

function Summary({ of, known }: { of: Schemas["TopologyState"]; known: boolean }) {
  const { configuration } = of;
  return (
    <div className="panel summary">
      <Vitals of={of} known={known} />
      <dl className="facts">
        <div>
          <dt>In flight</dt>
          <dd>{count(of.pending)}</dd>
        </div>
        <div>
          <dt>Outstanding, of at most</dt>
          <dd>
            {count(of.outstanding)} of {compact(configuration.high_water_mark)}
          </dd>
        </div>
        <div>
          <dt>Oldest in flight</dt>
          <dd>{duration(of.oldest_age)}</dd>
        </div>
        <div>
          <dt>Message timeout</dt>
          <dd>{duration(configuration.message_timeout)}</dd>
        </div>
        <div>
          <dt>Waiting slabs</dt>
          <dd>{count(of.waiting_slabs)}</dd>
        </div>
      </dl>
    </div>
  );
}
