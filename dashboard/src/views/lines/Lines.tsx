import { useQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useMemo } from "react";
import { Link, useParams } from "react-router";
import type { Schemas } from "../../api/client";
import { linesQuery } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { RefreshControl } from "../../components/page/RefreshControl";
import { useRefresh } from "../../hooks/refresh";
import { oneOf, useUrl } from "../../hooks/url";
import { count, duration, NOTHING } from "../../lib/format";
import { requestPath } from "./lines";

const SHOWN = ["all", "waiting"] as const;
const SHOWN_NAMES = { all: "All gathers", waiting: "Where rows wait" } as const;
const DEFAULTS = { shown: "all" };

interface Row {
  line: string;
  of: Schemas["GatherState"];
}

interface Unread {
  line: string;
  of: Schemas["UnreadStream"];
}

const UNREAD: ColumnDef<Unread>[] = [
  { header: "Line", cell: ({ row: { original } }) => <span className="wrap">{original.line}</span> },
  {
    header: "Stream",
    cell: ({ row: { original } }) => (
      <span className="wrap">
        {original.of.stream} <Status kind="failed" word="no step reads it" />
      </span>
    ),
    meta: { width: "w-wide" },
  },
  { header: "Rows", cell: ({ row }) => count(row.original.of.rows), meta: { number: true } },
  {
    header: "Oldest waits for",
    cell: ({ row }) => duration(row.original.of.oldest),
    meta: { number: true },
  },
];

/** The lines of a topology, and what waits in their gathers. */
export function Lines() {
  const { topology = "" } = useParams();
  const refresh = useRefresh();
  const [url, change] = useUrl(DEFAULTS);
  const shown = oneOf(url.shown, SHOWN);
  const found = useQuery({
    ...linesQuery(topology),
    refetchInterval: refresh.interval,
  });
  const columns = useMemo(() => gatherColumns(topology), [topology]);
  const lines = found.data?.lines ?? [];
  const gathers = lines.flatMap((line) => line.gathers.map((of): Row => ({ line: line.line, of })));
  const rows = gathers.filter(({ of }) => shown === "all" || of.rows > 0 || of.groups > 0);
  const unread = lines.flatMap((line) => line.unread.map((of): Unread => ({ line: line.line, of })));
  return (
    <>
      <div className="title">
        <h1>Lines</h1>
        <RefreshControl refresh={refresh} updatedAt={found.dataUpdatedAt} error={found.error} />
      </div>
      <p className="faint">
        A stream of a line gathers: its rows wait until all of their request that will ever come are written.
        A request is found by the anchor of any of its trees, in the box above.{" "}
        <Link to={`/functions?topology=${topology}`}>Functions of this topology</Link>
      </p>
      <Loaded query={found} what="lines">
        {lines.length === 0 && (
          <Empty>
            <p>The topology has no line.</p>
            <p>
              One is declared by <code>Line(ledger, "reach", [Gather("followers")])</code>, or with a{" "}
              <Link to={`/functions?topology=${topology}`}>function</Link>.
            </p>
          </Empty>
        )}
        {unread.length > 0 && (
          <section>
            <h2>Streams that nobody reads</h2>
            <p className="faint">
              Steps have emitted rows to them, whose requests end when their time is over. A name may be
              mistyped, or a step be missing.
            </p>
            <DataTable
              caption="Streams that nobody reads"
              rows={unread}
              columns={UNREAD}
              id={({ line, of }) => `${line}/${of.stream}`}
            />
          </section>
        )}
        {lines.length > 0 && (
          <>
            <div className="segments two" role="group" aria-label="Which gathers">
              {SHOWN.map((one) => (
                <button
                  key={one}
                  type="button"
                  aria-pressed={one === shown}
                  onClick={() => change({ shown: one })}
                >
                  {SHOWN_NAMES[one]}
                </button>
              ))}
            </div>
            {rows.length === 0 ? (
              <p className="faint">Nothing waits in any gather.</p>
            ) : (
              <DataTable
                caption="Gathers of lines"
                rows={rows}
                columns={columns}
                id={({ of }) => of.stream}
              />
            )}
          </>
        )}
      </Loaded>
    </>
  );
}

function gatherColumns(topology: string): ColumnDef<Row>[] {
  return [
    { header: "Line", cell: ({ row: { original } }) => <span className="wrap">{original.line}</span> },
    {
      header: "Gathers",
      cell: ({ row: { original } }) => (
        <span className="wrap">
          {original.of.stream} {!original.of.read && <Status kind="failed" word="no step reads it" />}
        </span>
      ),
      meta: { width: "w-wide" },
    },
    {
      header: "Tasks",
      cell: ({ row: { original } }) =>
        original.of.by.length === 0
          ? count(original.of.tasks)
          : `${count(original.of.tasks)}, by ${original.of.by.join(", ")}`,
    },
    {
      header: "Groups waiting",
      cell: ({ row: { original } }) => `${count(original.of.groups)}${original.of.more ? " or more" : ""}`,
      meta: { number: true },
    },
    { header: "Rows", cell: ({ row }) => count(row.original.of.rows), meta: { number: true } },
    {
      header: "Oldest waits for",
      cell: ({ row: { original } }) =>
        original.of.oldest_request === null ? (
          NOTHING
        ) : (
          <Link to={requestPath(topology, original.of.oldest_request)}>{duration(original.of.oldest)}</Link>
        ),
      meta: { number: true },
    },
  ];
}
