import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { Schemas } from "../../api/client";
import { statsQuery, topologiesQuery } from "../../api/queries";
import { HealthBadge, Troubles, Vitals } from "../../components/Health";
import { Mark, type Kind } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { Pager } from "../../components/table/Pager";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Sparkline } from "../../components/Sparkline";
import { useRefresh, type Refresh } from "../../hooks/refresh";
import { useUrl } from "../../hooks/url";
import { compact, count } from "../../lib/format";
import { rates } from "../../lib/series";

const DEFAULTS = { cursor: "" };
/** Seconds between two readings of a card's line, each of whose points counts ten. */
const SPARKLINE_SECONDS = 10;

/** All topologies as cards. */
export function Overview() {
  const refresh = useRefresh();
  const [{ cursor }, change] = useUrl(DEFAULTS);
  const topologies = useQuery({
    ...topologiesQuery(cursor),
    refetchInterval: refresh.interval,
  });
  const shown = [...(topologies.data?.topologies ?? []), ...(topologies.data?.unreadable ?? [])].sort(
    (one, other) => (one.topology < other.topology ? -1 : 1),
  );
  return (
    <>
      <div className="title">
        <h1>Topologies</h1>
        <RefreshControl refresh={refresh} updatedAt={topologies.dataUpdatedAt} error={topologies.error} />
      </div>
      <Loaded query={topologies} what="topologies">
        {shown.length === 0 ? (
          <Empty>
            <p>The store holds no topology yet.</p>
            <p className="faint">
              One appears when a spout tracks its first record: <code>Topology(url, "wordcount")</code>, or{" "}
              <code>acker demo</code>.
            </p>
          </Empty>
        ) : (
          <ul className="cards">
            {shown.map((one) => (
              <li key={one.topology}>
                {"reason" in one ? (
                  <UnreadableCard of={one} />
                ) : (
                  <Card of={one} refresh={refresh} known={topologies.error === null} />
                )}
              </li>
            ))}
          </ul>
        )}
      </Loaded>
      {(cursor !== "" || topologies.data?.cursor != null) && (
        <Pager
          first={cursor === ""}
          next={topologies.data?.cursor ?? null}
          go={(next) => change({ cursor: next })}
        />
      )}
    </>
  );
}

function Card({ of, refresh, known }: { of: Schemas["TopologySummary"]; refresh: Refresh; known: boolean }) {
  const stats = useQuery({
    ...statsQuery(of.topology, "10m", SPARKLINE_SECONDS),
    refetchInterval: refresh.paused ? false : Math.max(SPARKLINE_SECONDS, refresh.seconds) * 1000,
  });
  const acked = stats.data ? rates(stats.data.acked, stats.data.seconds) : [];
  const rate = acked.at(-1);
  return (
    <article className="card" aria-label={of.topology}>
      <div className="title">
        <h2>
          <Link to={`/t/${of.topology}`}>{of.topology}</Link>
        </h2>
        <HealthBadge health={of.health} known={known} />
      </div>
      <div className="spark">
        <Sparkline values={acked} label={`Acked a second over the last ten minutes, now ${compact(rate)}`} />
        <span>
          <b>{compact(rate)}</b> acked/s
        </span>
      </div>
      <dl className="figures">
        <Figure kind="pending" label="in flight" value={of.pending} />
        <Figure kind="failed" label="failed" value={of.counters.failed} />
        <Figure kind="expired" label="expired" value={of.counters.expired} />
        <Figure kind="rejected" label="rejected" value={of.counters.rejected} />
      </dl>
      <Vitals of={of} />
      <Troubles health={of.health} brief />
    </article>
  );
}

/** In place of the card of a topology that the service cannot read: what is wrong with it. */
function UnreadableCard({ of }: { of: Schemas["UnreadableTopology"] }) {
  return (
    <article className="card" aria-label={of.topology}>
      <div className="title">
        <h2>
          <Link to={`/t/${of.topology}`}>{of.topology}</Link>
        </h2>
        <span className="health ill">
          <span aria-hidden="true">▲</span> cannot be read
        </span>
      </div>
      <ul className="troubles" aria-label="What needs a look">
        <li data-trouble="unreadable">
          <span aria-hidden="true">▲</span> <span>{of.reason}</span>
        </li>
      </ul>
      <p className="faint">
        Nothing can be shown of this topology until that is mended. Look for damage in the store, or for two
        versions of acker. All other topologies go on.
      </p>
    </article>
  );
}

function Figure({ kind, label, value }: { kind: Kind; label: string; value: number }) {
  return (
    <div>
      <dt>
        <Mark kind={kind} />
        {label}
      </dt>
      <dd title={count(value)}>{value < 100_000 ? count(value) : compact(value)}</dd>
    </div>
  );
}
