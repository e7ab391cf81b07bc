import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ColumnDef, RowSelectionState } from "@tanstack/react-table";
import { useMemo, useState, type ReactNode } from "react";
import { Link } from "react-router";
import { deadLetterGroupsQuery, deadLettersQuery, readDeadLetters } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { ExportButtons } from "../../components/table/ExportButtons";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { Pager } from "../../components/table/Pager";
import { RefreshControl } from "../../components/page/RefreshControl";
import { MessageId, Reason } from "../../components/Text";
import { useRefresh } from "../../hooks/refresh";
import { useReadOnly } from "../../hooks/scope";
import { MOST_CALLS, MOST_ROWS } from "../../components/table/export";
import { count, instant, plural, stepBatch } from "../../lib/format";
import { collect } from "../../lib/pages";
import { printable } from "../../lib/text";
import type { Ask, Every, Target } from "./Action";
import { readGroups, type DeadLetter, type Matching } from "./filter";

const PAGE = 50;

/** Dead letters one by one. */
export function LetterRows({
  topology,
  asked,
  filtered,
  waits,
  ask,
  said,
  filter,
  cursor,
  go,
}: {
  topology: string;
  asked: Matching;
  filtered: boolean;
  waits: boolean;
  ask: Ask;
  said: string;
  filter: ReactNode;
  cursor: string;
  go: (cursor: string) => void;
}) {
  const refresh = useRefresh();
  const readOnly = useReadOnly();
  const queries = useQueryClient();
  const [chosen, setSelected] = useState<RowSelectionState>({});
  const [every, setEvery] = useState<Every | null>(null);
  const [counting, setCounting] = useState("");
  const letters = useQuery({
    ...deadLettersQuery(topology, asked, cursor, PAGE),
    refetchInterval: ({ state }) =>
      waits ||
      refresh.paused ||
      every !== null ||
      Object.keys(chosen).some((id) => state.data?.rows.some((row) => row.id === id))
        ? false
        : Math.max(2, refresh.seconds) * 1000,
  });
  const rows = letters.data?.rows ?? [];
  const ids = rows.map((row) => row.id).filter((id) => chosen[id]);
  // What was counted is of its filter alone.
  const all = every !== null && JSON.stringify(every.matching) === JSON.stringify(asked) ? every : null;
  const target: Target = all ?? { ids };
  const nothing = all === null ? ids.length === 0 : all.count === 0;
  const selectAll = async () => {
    setCounting("Counting all that match…");
    try {
      const found = await queries.query({
        ...deadLetterGroupsQuery(topology, asked, readGroups),
        queryKey: ["dead-letter-groups", topology, asked, "now"],
      });
      setEvery({ matching: asked, until: found.until, count: found.count });
      setCounting("");
    } catch (error) {
      setCounting(error instanceof Error ? error.message : String(error));
    }
  };
  const columns = useMemo(() => letterColumns(topology), [topology]);
  return (
    <>
      <div className="title">
        <h1>Dead letters</h1>
        <RefreshControl
          refresh={refresh}
          waits={waits || ids.length > 0 || all !== null}
          updatedAt={letters.dataUpdatedAt}
          error={letters.error}
        />
      </div>
      {filter}
      <div className="toolbar actions">
        <OperatorButton kind="primary" disabled={nothing} press={() => ask("replay", target)}>
          Replay…
        </OperatorButton>
        <OperatorButton kind="danger" disabled={nothing} press={() => ask("discard", target)}>
          Discard…
        </OperatorButton>
        <OperatorButton
          disabled={all === null && rows.length === 0}
          press={() => (all === null ? void selectAll() : setEvery(null))}
        >
          {all === null ? "Select all that match" : "Select none"}
        </OperatorButton>
        <ReadOnly />
        <span role="status">
          {counting ||
            (all !== null
              ? `all ${plural(all.count, "dead letter")} that match selected; updates wait`
              : ids.length > 0
                ? `${plural(ids.length, "dead letter")} selected; updates wait`
                : said)}
        </span>
        <span className="spring" />
        <ExportButtons
          name={`${topology}-dead-letters`}
          rows={async () => {
            const found = await collect(readDeadLetters(topology, asked), MOST_ROWS, undefined, MOST_CALLS);
            return { rows: found.rows.map((one) => ({ ...one })), all: found.cursor === null };
          }}
        />
      </div>
      <Loaded query={letters} what="dead letters">
        {rows.length === 0 ? (
          <Empty>
            {letters.data?.cursor != null
              ? "None found so far: there is more to search."
              : cursor !== ""
                ? "No more dead letters."
                : filtered
                  ? "No dead letter is like that."
                  : "No row was given up: there is no dead letter."}
          </Empty>
        ) : (
          <DataTable
            caption="Dead letters"
            rows={rows}
            columns={columns}
            id={(letter) => letter.id}
            selection={readOnly ? undefined : { selected: chosen, setSelected }}
          />
        )}
      </Loaded>
      <Pager first={cursor === ""} next={letters.data?.cursor ?? null} go={go} />
    </>
  );
}

function letterColumns(topology: string): ColumnDef<DeadLetter>[] {
  return [
    {
      header: "Given up",
      cell: ({ row: { original } }) => (
        <Link to={`/t/${topology}/dead-letters/${original.id}`}>{instant(original.at)}</Link>
      ),
      meta: { width: "w-when" },
    },
    { header: "Kind", cell: ({ row }) => <Status kind={row.original.status} />, meta: { width: "w-state" } },
    { header: "Message id", cell: ({ row }) => <MessageId of={row.original} />, meta: { width: "w-wide" } },
    { header: "Reason", cell: ({ row }) => <Reason text={row.original.reason} />, meta: { width: "w-wide" } },
    {
      header: "Step",
      cell: ({ row }) => stepBatch(row.original) || <span className="faint">not known</span>,
    },
    {
      header: "Attempts",
      cell: ({ row }) => count(row.original.attempts),
      meta: { number: true, width: "w-tiny" },
    },
    { header: "Spout", accessorKey: "spout" },
    {
      header: "Row",
      cell: ({ row: { original } }) =>
        original.row_left_out === "scope" ? (
          <span className="faint">your token has no scope rows</span>
        ) : original.row === null ? (
          <Link to={`/t/${topology}/dead-letters/${original.id}`}>large</Link>
        ) : (
          <details>
            <summary>show</summary>
            <RowText row={original.row} />
          </details>
        ),
    },
  ];
}

/** The columns of a row, as JSON. */
export function RowText({ row }: { row: Record<string, unknown> }) {
  return <pre>{JSON.stringify(row, null, 2).split("\n").map(printable).join("\n")}</pre>;
}
