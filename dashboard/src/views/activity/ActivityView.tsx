import { useQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useParams } from "react-router";
import { activityQuery, readActivity } from "../../api/history";
import { Choice, Entry } from "../../components/Fields";
import { Empty, Loaded } from "../../components/Notice";
import { RefreshControl } from "../../components/page/RefreshControl";
import { DataTable } from "../../components/table/DataTable";
import { MOST_CALLS, MOST_ROWS } from "../../components/table/export";
import { ExportButtons } from "../../components/table/ExportButtons";
import { Pager } from "../../components/table/Pager";
import { Reason } from "../../components/Text";
import { useRefresh } from "../../hooks/refresh";
import { useUrl } from "../../hooks/url";
import { count, instant, NOTHING } from "../../lib/format";
import { collect } from "../../lib/pages";
import { ACTIONS, author, result, target, type Activity } from "./activity";

const FILTER = { action: "", who: "" };
const DEFAULTS = { ...FILTER, cursor: "" };
const PAGE = 50;

/** Who has written to a topology, what, and with what result: the latest first. */
export function ActivityView() {
  const { topology = "" } = useParams();
  const refresh = useRefresh();
  const [url, change] = useUrl(DEFAULTS);
  const { cursor, ...filter } = url;
  const found = useQuery({
    ...activityQuery(topology, filter, cursor, PAGE),
    refetchInterval: refresh.paused ? false : 1000 * Math.max(2, refresh.seconds),
  });
  const rows = found.data?.rows ?? [];
  const filtered = Object.values(filter).some((value) => value !== "");
  const apply = (patch: Partial<typeof FILTER>) => change({ ...patch, cursor: "" });
  return (
    <>
      <div className="title">
        <h1>Activity</h1>
        <RefreshControl refresh={refresh} quiet={2} updatedAt={found.dataUpdatedAt} error={found.error} />
      </div>
      <search className="filter">
        <Choice
          label="Action"
          value={filter.action}
          options={ACTIONS}
          change={(action) => apply({ action })}
        />
        <Entry
          label="Who"
          value={filter.who}
          placeholder="part of the name"
          maxLength={200}
          change={(who) => apply({ who })}
        />
        {filtered && (
          <button type="button" onClick={() => apply(FILTER)}>
            Clear
          </button>
        )}
      </search>
      <div className="toolbar actions">
        <span className="faint">The latest 1,000 writes of people and programs are kept.</span>
        <span className="spring" />
        <ExportButtons
          name={`${topology}-activity`}
          rows={async () => {
            const all = await collect(readActivity(topology, filter), MOST_ROWS, undefined, MOST_CALLS);
            return { rows: all.rows.map((one) => ({ ...one })), all: all.cursor === null };
          }}
        />
      </div>
      <Loaded query={found} what="the activity">
        {rows.length === 0 ? (
          <Empty>
            {filtered || cursor !== ""
              ? "No further write is like that."
              : "Nobody has changed anything yet."}
          </Empty>
        ) : (
          <DataTable caption="Activity" rows={rows} columns={COLUMNS} id={(one) => one.id} />
        )}
      </Loaded>
      <Pager
        first={cursor === ""}
        next={found.data?.cursor ?? null}
        go={(next) => change({ cursor: next })}
      />
    </>
  );
}

const COLUMNS: ColumnDef<Activity>[] = [
  { header: "When", cell: ({ row }) => instant(row.original.at), meta: { width: "w-when" } },
  {
    header: "Who",
    cell: ({ row }) => <Reason text={author(row.original)} whole />,
    meta: { width: "w-who" },
  },
  { header: "Action", accessorKey: "action", meta: { width: "w-action" } },
  {
    header: "Count",
    cell: ({ row }) => count(row.original.count),
    meta: { number: true, width: "w-tiny" },
  },
  {
    header: "Of",
    cell: ({ row }) => <Reason text={target(row.original) || NOTHING} />,
    meta: { width: "w-wide" },
  },
  { header: "Reason", cell: ({ row }) => <Reason text={row.original.reason || NOTHING} /> },
  {
    header: "Result",
    cell: ({ row: { original } }) => (
      <span className={original.done ? undefined : "undone"}>
        {!original.done && <span aria-hidden="true">⚠ </span>}
        <Reason text={result(original)} />
      </span>
    ),
  },
];
