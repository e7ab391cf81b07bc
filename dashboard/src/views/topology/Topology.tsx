import { useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";
import type { Schemas } from "../../api/client";
import { topologyQuery } from "../../api/queries";
import { HealthBadge, TroubleLine, Troubles, Vitals } from "../../components/Health";
import { Loaded } from "../../components/Notice";
import { RefreshControl } from "../../components/page/RefreshControl";
import { useRefresh } from "../../hooks/refresh";
import { oneOf, useUrl } from "../../hooks/url";
import { compact, count, duration } from "../../lib/format";
import { COUNTS } from "../../lib/series";
import { Charts } from "../charts/Charts";
import { useMarks } from "../charts/Marks";
import { SPANS, useStats, WINDOWS } from "../charts/stats";
import { Graph } from "../graph/Graph";
import { Parts } from "./Parts";
import { Removal } from "./Removal";

const DEFAULTS = { window: "10m" };
const WINDOW_NAMES = { "10m": "10 minutes", "3h": "3 hours", "1d": "1 day", all: "All (30 days)" };

/** A topology: its figures over a window, charts, shards, spouts and bolts. */
export function Topology() {
  const { topology = "" } = useParams();
  const refresh = useRefresh();
  const [url, change] = useUrl(DEFAULTS);
  const window = oneOf(url.window, WINDOWS);
  const { stats, connection } = useStats(topology, window, refresh);
  const marks = useMarks(topology, SPANS[window], refresh.paused);
  const state = useQuery({
    ...topologyQuery(topology),
    refetchInterval: refresh.interval,
  });
  return (
    <>
      <div className="title">
        <h1>{topology}</h1>
        {state.data && (
          <>
            <HealthBadge health={state.data.health} known={state.error === null} />
            <TroubleLine health={state.data.health} />
          </>
        )}
        <RefreshControl
          refresh={refresh}
          updatedAt={state.dataUpdatedAt}
          error={state.error ?? stats.error}
        />
      </div>
      {(state.data !== undefined || state.errorUpdatedAt === 0) && (
        <Graph topology={topology} refresh={refresh} />
      )}
      <Loaded query={state} what="the topology">
        {state.data && <Summary of={state.data} known={state.error === null} />}
      </Loaded>
      {(state.data !== undefined || state.errorUpdatedAt === 0) && (
        <section aria-label="History">
          <div className="toolbar">
            <div className="segments" role="group" aria-label="Window">
              {WINDOWS.map((one) => (
                <button
                  key={one}
                  type="button"
                  aria-pressed={one === window}
                  onClick={() => change({ window: one })}
                >
                  {WINDOW_NAMES[one]}
                </button>
              ))}
            </div>
            <span className="faint" data-connection={connection}>
              {connection === "lost" ? "no live events: read again every few seconds" : ""}
            </span>
          </div>
          <Loaded query={stats} what="the history">
            {stats.data && (
              <>
                <Totals of={stats.data} window={WINDOW_NAMES[window]} />
                <Charts stats={stats.data} span={SPANS[window]} marks={marks} />
              </>
            )}
          </Loaded>
        </section>
      )}
      {state.data && <Parts of={state.data} />}
      {/* At the end, so that nothing moves when one comes up. */}
      {state.data && state.data.health.troubles.length + state.data.health.muted.length > 0 && (
        <section id="health" aria-labelledby="health-title">
          <h2 id="health-title">What needs a look</h2>
          <Troubles health={state.data.health} />
        </section>
      )}
      {state.data && <Removal of={state.data} />}
    </>
  );
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

function Totals({ of, window }: { of: Schemas["Stats"]; window: string }) {
  return (
    <dl className="panel figures totals" aria-label={`Totals, ${window}`}>
      {COUNTS.map((name) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{count(of.totals[name])}</dd>
        </div>
      ))}
    </dl>
  );
}
