import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { Schemas } from "../../api/client";
import { statsQuery } from "../../api/history";
import { topologiesQuery } from "../../api/queries";
import { HealthBadge, MutedWords } from "../../components/Health";
import { Mark, type Kind } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { Pager } from "../../components/table/Pager";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Sparkline } from "../../components/Sparkline";
import { useRefresh, type Refresh } from "../../hooks/refresh";
import { useSeen } from "../../hooks/seen";
import { useTab } from "../../hooks/title";
import { useUrl } from "../../hooks/url";
import { brief, capital, compact, count, instant } from "../../lib/format";
import { rates } from "../../lib/series";
import { inWords, LEVELS, place } from "../../lib/triage";

const DEFAULTS = { cursor: "", name: "", state: "" };
/** Seconds between two readings of a row's line, each of whose points counts ten. */
const SPARKLINE_SECONDS = 10;
/** Least seconds between two updates while nobody sees the page. */
const HIDDEN_SECONDS = 5;
const LATEST = { name: "10m", span: 600, until: null };

type Summary = Schemas["TopologySummary"];
type Row = Summary | Schemas["UnreadableTopology"];

/** All topologies, the ill ones first, each with its trouble, its age, and where to look. */
export function Overview() {
  const refresh = useRefresh();
  const [url, change] = useUrl(DEFAULTS);
  const { cursor, name } = url;
  const states = LEVELS.map(([level]) => level).filter((level) => url.state.split(",").includes(level));
  const topologies = useQuery({
    ...topologiesQuery(cursor, name, states),
    // The tab tells how they are while somebody looks elsewhere, too.
    refetchInterval: () =>
      refresh.paused ? false : 1000 * Math.max(refresh.seconds, document.hidden ? HIDDEN_SECONDS : 0),
    refetchIntervalInBackground: true,
  });
  const read = topologies.data;
  const shown: Row[] = [...(read?.unreadable ?? []), ...(read?.topologies ?? [])];
  const known = topologies.error === null;
  useTab(read?.counts, known);
  const filtered = name !== "" || states.length > 0;
  return (
    <>
      <div className="title">
        <h1>Topologies</h1>
        {read?.counts && (
          <p className="counts" role="status">
            {known ? inWords(read.counts) : "unknown now"}
          </p>
        )}
        <RefreshControl refresh={refresh} updatedAt={topologies.dataUpdatedAt} error={topologies.error} />
      </div>
      <div className="toolbar">
        <label className="field">
          <span>Name</span>
          <input
            type="search"
            value={name}
            maxLength={64}
            spellCheck={false}
            onChange={(event) => change({ name: event.target.value, cursor: "" }, true)}
          />
        </label>
        <div className="segments" role="group" aria-label="State">
          {LEVELS.map(([level, words]) => (
            <button
              key={level}
              type="button"
              aria-pressed={states.includes(level)}
              onClick={() =>
                change({
                  state: LEVELS.map(([one]) => one)
                    .filter((one) => (one === level) !== states.includes(one))
                    .join(","),
                  cursor: "",
                })
              }
            >
              {capital(words(1))}{" "}
              {read?.counts && <span className="count">{known ? count(read.counts[level]) : "?"}</span>}
            </button>
          ))}
        </div>
      </div>
      <Loaded query={topologies} what="topologies">
        {shown.length === 0 && filtered && <Empty>No topology is like that.</Empty>}
        {shown.length === 0 && !filtered && (
          <Empty>
            <p>The store holds no topology yet.</p>
            <p className="faint">
              One appears when a spout tracks its first record: <code>Topology(url, "wordcount")</code>, or{" "}
              <code>acker demo</code>.
            </p>
          </Empty>
        )}
        <ul className="triage">
          {shown.map((one) => (
            <li key={one.topology}>
              {"reason" in one ? (
                <Unreadable of={one} />
              ) : (
                <TopologyRow of={one} refresh={refresh} known={known} at={topologies.dataUpdatedAt} />
              )}
            </li>
          ))}
        </ul>
      </Loaded>
      {(cursor !== "" || read?.cursor != null) && (
        <Pager first={cursor === ""} next={read?.cursor ?? null} go={(next) => change({ cursor: next })} />
      )}
    </>
  );
}

/** A topology on one line: of an ill one its worst trouble, of a well one what passes. */
function TopologyRow({
  of,
  refresh,
  known,
  at,
}: {
  of: Summary;
  refresh: Refresh;
  known: boolean;
  at: number;
}) {
  const [worst, ...others] = of.health.troubles;
  const muted = of.health.muted[0];
  return (
    <article className={`topology ${known ? of.health.severity : ""}`} aria-label={of.topology}>
      <h2>
        <Link to={`/t/${of.topology}`}>{of.topology}</Link>
      </h2>
      <HealthBadge health={of.health} known={known} />
      {worst === undefined && muted === undefined && <Passing of={of} refresh={refresh} />}
      {worst === undefined && muted !== undefined && (
        <>
          <p className="what faint">
            <MutedWords of={muted} />
          </p>
          <Since since={muted.since} at={at} />
          <Look to={`/t/${of.topology}`} words="Its page" />
        </>
      )}
      {worst !== undefined && (
        <>
          <p className="what" title={of.health.troubles.map(({ text }) => `${capital(text)}.`).join("\n")}>
            {capital(worst.text)}.{others.length > 0 && ` And ${others.length} more.`}
          </p>
          <Since since={worst.since} at={at} />
          <Look {...place(of.topology, worst.code)} />
        </>
      )}
    </article>
  );
}

function Since({ since, at }: { since: string | null; at: number }) {
  if (since === null) return <span className="since faint">since ?</span>;
  return (
    <time className="since" dateTime={since} title={instant(since)}>
      for {brief(Math.max(0, (at - Date.parse(since)) / 1000))}
    </time>
  );
}

function Look({ to, words }: { to: string; words: string }) {
  return (
    <Link to={to} className="button">
      {words}
    </Link>
  );
}

/** What passes through a topology that needs nobody. Its line is read when it comes into view. */
function Passing({ of, refresh }: { of: Summary; refresh: Refresh }) {
  const [line, seen] = useSeen<HTMLDivElement>();
  const stats = useQuery({
    ...statsQuery(of.topology, LATEST, SPARKLINE_SECONDS),
    enabled: seen,
    refetchInterval: refresh.paused ? false : Math.max(SPARKLINE_SECONDS, refresh.seconds) * 1000,
  });
  const acked = stats.data ? rates(stats.data.acked, stats.data.seconds) : [];
  const rate = acked.at(-1);
  return (
    <>
      <div className="spark" ref={line}>
        <Sparkline values={acked} label={`Acked a second over the last ten minutes, now ${compact(rate)}`} />
        <span>
          <b>{compact(rate)}</b> acked/s
        </span>
      </div>
      <dl className="figures">
        <Figure kind="pending" label="in flight" value={of.pending} />
        <Figure kind="failed" label="failed" value={of.counters.failed} />
      </dl>
    </>
  );
}

/** In place of the row of a topology that the service cannot read: what is wrong with it. */
function Unreadable({ of }: { of: Schemas["UnreadableTopology"] }) {
  return (
    <article className="topology critical" aria-label={of.topology}>
      <h2>
        <Link to={`/t/${of.topology}`}>{of.topology}</Link>
      </h2>
      <span className="health critical">
        <span aria-hidden="true">▲</span> cannot be read
      </span>
      <p className="what" title={of.reason} data-trouble="unreadable">
        {of.reason}. Look for damage in the store, or for two versions of acker.
      </p>
      <Since since={null} at={0} />
      <Look to={`/t/${of.topology}`} words="Its page" />
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
