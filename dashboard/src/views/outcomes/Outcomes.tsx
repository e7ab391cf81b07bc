import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { Link, useParams } from "react-router";
import type { Schemas } from "../../api/client";
import { outcomeGroupsQuery, outcomesQuery, readOutcomes, renewOutcomes } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { ExportButtons } from "../../components/table/ExportButtons";
import { FailureFields, MessageIdEntry } from "../../components/Fields";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { Pager } from "../../components/table/Pager";
import { RefreshControl } from "../../components/page/RefreshControl";
import { MessageId, Reason } from "../../components/Text";
import { useEvents } from "../../hooks/events";
import { useRefresh } from "../../hooks/refresh";
import { useTopology } from "../../hooks/topology";
import { oneOf, useUrl } from "../../hooks/url";
import { MOST_CALLS, MOST_ROWS } from "../../components/table/export";
import { duration, instant, stepBatch } from "../../lib/format";
import { collect } from "../../lib/pages";
import { OutcomeCauses } from "./Causes";

type Outcome = Schemas["Outcome"];

const CAUSES = { status: "", spout: "", step: "", reason: "", cause: "" };
const FILTER = { ...CAUSES, message_id: "", message_id_base64: "" };
const DEFAULTS = { ...FILTER, view: "rows", cursor: "" };
const VIEWS = ["rows", "causes"] as const;
const VIEW_NAMES = { rows: "Latest first", causes: "By cause" };
const PAGE = 50;
/** Seconds between two readings where no event says that something happened. */
const QUIET_SECONDS = 15;
/** Seconds between two counts of the causes. */
const COUNT_SECONDS = 5;

/** Failures and expirations, latest first. */
export function Outcomes() {
  const { topology = "" } = useParams();
  const refresh = useRefresh();
  const queries = useQueryClient();
  const [url, change] = useUrl(DEFAULTS);
  const config = useTopology(topology);
  const { cursor, view: named, ...filter } = url;
  const view = oneOf(named, VIEWS);
  // An event only says that there is something new: the service, which knows the filter, is asked for it.
  const news = useRef(false);
  const connection = useEvents(
    topology,
    useCallback(({ event }) => {
      if (event === "outcome" || event === "outcomes") news.current = true;
    }, []),
  );
  // What happened while no event came.
  useEffect(() => {
    if (connection === "live") news.current = true;
  }, [connection]);
  const outcomes = useQuery({
    ...outcomesQuery(topology, filter, cursor, PAGE),
    enabled: view === "rows",
    refetchInterval: refresh.paused
      ? false
      : 1000 * (connection === "live" ? QUIET_SECONDS : Math.max(2, refresh.seconds)),
  });
  const causes = useQuery({
    ...outcomeGroupsQuery(
      topology,
      Object.fromEntries(Object.entries(filter).filter(([name]) => name in CAUSES)),
    ),
    enabled: view === "causes",
    refetchInterval: refresh.paused ? false : 1000 * Math.max(COUNT_SECONDS, refresh.seconds),
  });
  const seen = view === "causes" ? causes : outcomes;
  useEffect(() => {
    if (refresh.paused || cursor !== "") return;
    const timer = setInterval(() => {
      if (!news.current) return;
      news.current = false;
      void renewOutcomes(queries, topology);
    }, refresh.seconds * 1000);
    return () => clearInterval(timer);
  }, [queries, topology, cursor, refresh.paused, refresh.seconds]);
  const columns = useMemo(() => outcomeColumns(topology), [topology]);
  const rows = outcomes.data?.rows ?? [];
  const filtered = Object.values(filter).some((value) => value !== "");
  const apply = (patch: Partial<typeof DEFAULTS>) => change({ ...patch, cursor: "" });
  return (
    <>
      <div className="title">
        <h1>Failures and expirations</h1>
        <RefreshControl
          refresh={refresh}
          quiet={view === "causes" ? COUNT_SECONDS : connection === "live" ? QUIET_SECONDS : 2}
          updatedAt={seen.dataUpdatedAt}
          error={seen.error}
        />
      </div>
      <search className="filter">
        <div className="segments" role="group" aria-label="View">
          {VIEWS.map((one) => (
            <button key={one} type="button" aria-pressed={one === view} onClick={() => apply({ view: one })}>
              {VIEW_NAMES[one]}
            </button>
          ))}
        </div>
        <FailureFields
          filter={{ ...filter, step: filter.step.replace(/^=/, "") }}
          spouts={config.data?.spouts ?? []}
          change={apply}
        />
        {view === "rows" && <MessageIdEntry filter={filter} change={apply} />}
        {filtered && (
          <button type="button" onClick={() => apply(FILTER)}>
            Clear
          </button>
        )}
        <span className="spring" />
        <ExportButtons
          name={`${topology}-outcomes`}
          rows={async () => {
            const found = await collect(readOutcomes(topology, filter), MOST_ROWS, undefined, MOST_CALLS);
            return { rows: found.rows.map((one) => ({ ...one })), all: found.cursor === null };
          }}
        />
      </search>
      {filter.cause !== "" && (
        <p className="chosen">
          Only of the cause <bdi className="wrap">{filter.cause.replace(/^=/, "") || "(none given)"}</bdi>{" "}
          <button type="button" onClick={() => apply({ cause: "" })}>
            All causes
          </button>
        </p>
      )}
      {view === "causes" ? (
        <OutcomeCauses
          found={causes}
          filtered={filtered}
          show={(patch) => apply({ ...patch, view: "rows" })}
        />
      ) : (
        <>
          <Loaded query={outcomes} what="failures and expirations">
            {rows.length === 0 ? (
              <Empty>
                {outcomes.data?.cursor != null
                  ? "None found so far: there is more to search."
                  : filtered
                    ? "Nothing that failed or expired is like that."
                    : "Nothing has failed or expired of late."}
              </Empty>
            ) : (
              <DataTable
                caption="Failures and expirations"
                rows={rows}
                columns={columns}
                id={(one) => one.id}
              />
            )}
          </Loaded>
          <Pager
            first={cursor === ""}
            next={outcomes.data?.cursor ?? null}
            go={(next) => change({ cursor: next })}
          />
        </>
      )}
    </>
  );
}

function outcomeColumns(topology: string): ColumnDef<Outcome>[] {
  return [
    { header: "When", cell: ({ row }) => instant(row.original.at), meta: { width: "w-when" } },
    { header: "Kind", cell: ({ row }) => <Status kind={row.original.status} />, meta: { width: "w-state" } },
    { header: "Message id", cell: ({ row }) => <MessageId of={row.original} />, meta: { width: "w-wide" } },
    {
      header: "Reason",
      cell: ({ row: { original } }) =>
        original.status === "expired" && original.reason === "" ? (
          <span className="faint">message timeout</span>
        ) : (
          <Reason text={original.reason} />
        ),
      meta: { width: "w-wide" },
    },
    { header: "Step", cell: ({ row }) => stepBatch(row.original) || duration(null) },
    { header: "Spout", cell: ({ row }) => row.original.spout ?? duration(null) },
    {
      header: "Age",
      cell: ({ row }) => duration(row.original.age),
      meta: { number: true, width: "w-short" },
    },
    {
      header: "Tree",
      cell: ({ row: { original } }) => (
        <Link className="mono" to={`/t/${topology}/trees/${original.anchor}`}>
          {original.anchor}
        </Link>
      ),
      meta: { width: "w-id" },
    },
  ];
}
