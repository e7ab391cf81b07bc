import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import type { ColumnDef, RowSelectionState } from "@tanstack/react-table";
import { useState } from "react";
import { useParams } from "react-router";
import { client, data, type Schemas } from "../api/client";
import { Confirm } from "../components/Confirm";
import { DataTable } from "../components/DataTable";
import { ExportButtons } from "../components/ExportButtons";
import { Choice } from "../components/Fields";
import { Status } from "../components/Mark";
import { Empty, Loaded } from "../components/Notice";
import { OperatorButton, ReadOnly } from "../components/Operator";
import { Pager } from "../components/Pager";
import { RefreshControl } from "../components/RefreshControl";
import { MessageId, Reason } from "../components/Text";
import { useRefresh } from "../hooks/refresh";
import { useReadOnly } from "../hooks/scope";
import { useTopology } from "../hooks/topology";
import { useUrl } from "../hooks/url";
import { MOST_CALLS, MOST_ROWS } from "../lib/export";
import { count, instant, plural } from "../lib/format";
import { collect, type ReadPage } from "../lib/pages";
import { printable } from "../lib/text";

type DeadLetter = Schemas["DeadLetter"];

const DEFAULTS = { spout: "", cursor: "" };
const PAGE = 50;

/** Records that were given up, to be looked at and tried again. */
export function DeadLetters() {
  const { topology = "" } = useParams();
  const refresh = useRefresh();
  const readOnly = useReadOnly();
  const queries = useQueryClient();
  const [{ spout, cursor }, change] = useUrl(DEFAULTS);
  const config = useTopology(topology);
  const [selected, setSelected] = useState<RowSelectionState>({});
  const [asking, setAsking] = useState(false);
  const [said, setSaid] = useState("");
  const read = reader(topology, spout);
  const ids = Object.keys(selected);
  const held = ids.length > 0 || asking;
  const letters = useQuery({
    queryKey: ["dead-letters", topology, spout, cursor],
    queryFn: () => collect(read, PAGE, cursor === "" ? undefined : cursor),
    refetchInterval: held || refresh.paused ? false : Math.max(2, refresh.seconds) * 1000,
    placeholderData: keepPreviousData,
  });
  const rows = letters.data?.rows ?? [];
  const go = (patch: Partial<typeof DEFAULTS>) => {
    setSelected({});
    setSaid("");
    change(patch);
  };
  const replay = async () => {
    const result = await data(
      client.POST("/api/v1/topologies/{topology}/dead-letters/replay", {
        params: { path: { topology } },
        body: { ids },
      }),
    );
    const told = [`${plural(result.replayed.length, "record")} will be tried again`];
    if (result.unknown.length) told.push(`${count(result.unknown.length)} were dead letters no more`);
    if (result.rejected.length) told.push(`for ${count(result.rejected.length)} there is no room now`);
    setSaid(`${told.join(", ")}.`);
    setSelected({});
    void queries.invalidateQueries({ queryKey: ["dead-letters", topology] });
  };
  return (
    <>
      <div className="title">
        <h1>Dead letters</h1>
        <RefreshControl
          refresh={refresh}
          held={held}
          updatedAt={letters.dataUpdatedAt}
          error={letters.error}
        />
      </div>
      <div className="toolbar actions">
        <OperatorButton kind="primary" disabled={ids.length === 0} press={() => setAsking(true)}>
          Replay…
        </OperatorButton>
        <ReadOnly />
        <Choice
          label="Spout"
          value={spout}
          options={config.data?.spouts ?? []}
          change={(next) => go({ spout: next, cursor: "" })}
        />
        <span role="status">
          {ids.length > 0 ? `${plural(ids.length, "dead letter")} selected; updates wait` : said}
        </span>
        <span className="spring" />
        <ExportButtons
          name={`${topology}-dead-letters`}
          rows={async () => {
            const found = await collect(read, MOST_ROWS, undefined, MOST_CALLS);
            return { rows: found.rows.map((one) => ({ ...one })), all: found.cursor === null };
          }}
        />
      </div>
      <Loaded query={letters} what="dead letters">
        {rows.length === 0 ? (
          <Empty>
            {cursor !== "" ? "No more dead letters." : "No record was given up: there is no dead letter."}
          </Empty>
        ) : (
          <DataTable
            caption="Dead letters"
            stack
            rows={rows}
            columns={COLUMNS}
            id={(letter) => letter.id}
            selection={readOnly ? undefined : { selected, setSelected }}
          />
        )}
      </Loaded>
      <Pager first={cursor === ""} next={letters.data?.cursor ?? null} go={(next) => go({ cursor: next })} />
      {asking && (
        <Confirm
          title={`Replay ${plural(ids.length, "dead letter")}?`}
          action="Replay"
          run={replay}
          close={() => setAsking(false)}
        >
          <p>
            {ids.length === 1 ? "The record is" : "The records are"} handed to the spout again, as a new tree
            with all attempts before it. Steps that took effect before take effect again unless they are
            idempotent. What fails again comes back here.
          </p>
        </Confirm>
      )}
    </>
  );
}

function reader(topology: string, spout: string): ReadPage<DeadLetter> {
  return async (cursor, limit) => {
    const page = await data(
      client.GET("/api/v1/topologies/{topology}/dead-letters", {
        params: {
          path: { topology },
          query: { limit, ...(spout === "" ? {} : { spout }), ...(cursor === undefined ? {} : { cursor }) },
        },
      }),
    );
    return { rows: page.dead_letters, cursor: page.cursor };
  };
}

const COLUMNS: ColumnDef<DeadLetter>[] = [
  { header: "Given up", cell: ({ row }) => instant(row.original.at), meta: { width: "w-when" } },
  { header: "Kind", cell: ({ row }) => <Status kind={row.original.status} />, meta: { width: "w-state" } },
  { header: "Message id", cell: ({ row }) => <MessageId of={row.original} />, meta: { width: "w-wide" } },
  { header: "Reason", cell: ({ row }) => <Reason text={row.original.reason} />, meta: { width: "w-wide" } },
  {
    header: "Attempts",
    cell: ({ row }) => count(row.original.attempts),
    meta: { number: true, width: "w-tiny" },
  },
  { header: "Spout", accessorKey: "spout" },
  {
    header: "Record",
    cell: ({ row: { original } }) =>
      original.row === null ? (
        <span className="faint">too large</span>
      ) : (
        <details>
          <summary>show</summary>
          <pre>{JSON.stringify(original.row, null, 2).split("\n").map(printable).join("\n")}</pre>
        </details>
      ),
  },
];
