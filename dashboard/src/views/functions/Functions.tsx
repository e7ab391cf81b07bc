import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { Schemas } from "../../api/client";
import { functionsQuery } from "../../api/functions";
import { CallFigures } from "./CallFigures";
import { CauseLines } from "./Causes";
import { FunctionBadge, FunctionTroubles } from "./FunctionHealth";
import { Empty, Loaded } from "../../components/Notice";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Sparkline } from "../../components/Sparkline";
import { TimeChoice } from "./TimeChoice";
import { TIME_NAMES, useTime } from "./time";
import { useRefresh } from "../../hooks/refresh";
import { useUrl } from "../../hooks/url";
import { compact, count } from "../../lib/format";
import { answerRate } from "./functions";

const DEFAULTS = { topology: "" };
const MOST_CAUSES = 3;

/** All functions of the store, or of one topology, as cards. */
export function Functions() {
  const refresh = useRefresh();
  const [{ topology }, change] = useUrl(DEFAULTS);
  const [time, choose] = useTime();
  const found = useQuery({
    ...functionsQuery(),
    refetchInterval: refresh.interval,
  });
  const all = found.data?.functions ?? [];
  const shown = all.filter((one) => topology === "" || one.topology === topology);
  const topologies = [
    ...new Set([...all.map((one) => one.topology), ...(topology ? [topology] : [])]),
  ].sort();
  return (
    <>
      <div className="title">
        <h1>Functions</h1>
        <RefreshControl refresh={refresh} updatedAt={found.dataUpdatedAt} error={found.error} />
      </div>
      <div className="toolbar">
        <TimeChoice time={time} choose={choose} />
        {topologies.length > 0 && (
          <label className="field">
            <span className="label">Topology</span>
            <select value={topology} onChange={(event) => change({ topology: event.target.value })}>
              <option value="">all</option>
              {topologies.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Loaded query={found} what="functions">
        {shown.length === 0 ? (
          <Empty>
            <p>
              {topology === "" ? "The store has no function yet." : `Topology ${topology} has no function.`}
            </p>
            <p className="faint">
              One appears when it is registered, or worked on:{" "}
              <code>LinearDRPC("reach").step(…).gather(…)</code>, <code>acker drpc work</code>.
            </p>
          </Empty>
        ) : (
          <ul className="cards">
            {shown.map((one) => (
              <li key={one.function}>
                <Card of={one} time={time} known={found.error === null} />
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </>
  );
}

function Card({
  of,
  time,
  known,
}: {
  of: Schemas["Function"];
  time: keyof typeof TIME_NAMES;
  known: boolean;
}) {
  const [rate, unit] = answerRate(of.recent.rate);
  return (
    <article className="card" aria-label={of.function}>
      <div className="title">
        <h2>
          <Link to={`/functions/${of.function}`}>{of.function}</Link>
        </h2>
        <FunctionBadge of={of} known={known} />
      </div>
      <div className="spark">
        <Sparkline values={of.minutes} label={`Answers in each minute, now ${rate} ${unit}`} />
        <span>
          <b>{rate}</b> {unit}
        </span>
      </div>
      <CallFigures of={of[time]} label={`Calls, ${TIME_NAMES[time]}`} />
      <dl className="facts">
        <div>
          <dt>Without answer, of at most</dt>
          <dd>
            {count(of.pending)} of {compact(of.max_pending)}
          </dd>
        </div>
        <div>
          <dt>Topology</dt>
          <dd>
            <Link to={`/t/${of.topology}`}>{of.topology}</Link>
          </dd>
        </div>
      </dl>
      <ul className="workers" aria-label="Workers alive for each step">
        {of.steps.map((step) => (
          <li key={step.name} className={step.workers === 0 ? "none" : ""}>
            <span>{step.name}</span> <b>{step.workers === null ? "Spark" : count(step.workers)}</b>
          </li>
        ))}
      </ul>
      <CauseLines of={of[time]} most={MOST_CAUSES} />
      {known && <FunctionTroubles of={of} brief />}
    </article>
  );
}
