import { useQuery } from "@tanstack/react-query";
import type { ColumnDef, RowSelectionState } from "@tanstack/react-table";
import { useMemo, useState } from "react";
import { Link, useParams } from "react-router";
import type { Schemas } from "../../api/client";
import { readTrees, treesQuery } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { ExportButtons } from "../../components/table/ExportButtons";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { Pager } from "../../components/table/Pager";
import { RefreshControl } from "../../components/page/RefreshControl";
import { MessageId } from "../../components/Text";
import { useRefresh } from "../../hooks/refresh";
import { useReadOnly } from "../../hooks/scope";
import { useTopology } from "../../hooks/topology";
import { useUrl } from "../../hooks/url";
import { MOST_CALLS, MOST_ROWS } from "../../components/table/export";
import { brief, capital, duration, instant, plural } from "../../lib/format";
import { collect } from "../../lib/pages";
import { findPath } from "../../lib/records";
import { LastWrite, useLatestWrites } from "../activity/LastWrite";
import { TreeAction, type Action } from "./Action";
import { TREE_FILTER, TreeFilter } from "./Filter";

type TreeRow = Schemas["Tree"];

const DEFAULTS = { ...TREE_FILTER, cursor: "" };
const PAGE = 50;
const WRITES = ["fail", "reset"];

/** All trees that match a filter, as they were read. */
interface Every {
  trees: TreeRow[];
  more: boolean;
  of: string;
}

/** Trees in flight, filtered and paged by the service. */
export function Trees() {
  const { topology = "" } = useParams();
  const refresh = useRefresh();
  const readOnly = useReadOnly();
  const [url, change] = useUrl(DEFAULTS);
  const [selected, setSelected] = useState<RowSelectionState>({});
  const [read, setEvery] = useState<Every | null>(null);
  const [reading, setReading] = useState("");
  const [action, setAction] = useState<Action | null>(null);
  const [said, setSaid] = useState("");
  const config = useTopology(topology);
  const writes = useLatestWrites(topology);
  const { cursor, ...filter } = url;
  const chosen = Object.keys(selected).length;
  // What was read is of its filter alone, which the back button changes, too.
  const every = read !== null && read.of === JSON.stringify(filter) ? read : null;
  // A chosen tree must not move away, nor be gone when the question is answered.
  const waits = chosen > 0 || every !== null || action !== null;
  const trees = useQuery({
    ...treesQuery(topology, filter, cursor, PAGE),
    refetchInterval: waits ? false : refresh.interval,
  });
  const columns = useMemo(() => treeColumns(topology), [topology]);
  const rows = trees.data?.rows ?? [];
  const targets = every?.trees ?? rows.filter((tree) => selected[tree.anchor]);
  const filtered = Object.values(filter).some((value) => value !== "");
  const go = (patch: Partial<typeof DEFAULTS>) => {
    setSelected({});
    setEvery(null);
    setSaid("");
    change(patch);
  };
  const readAll = async () => {
    const found = await collect(readTrees(topology, filter), MOST_ROWS, undefined, MOST_CALLS);
    // A tree that was reset meanwhile comes again, as it is then.
    const once = new Map(found.rows.map((tree) => [tree.anchor, tree]));
    return { trees: [...once.values()], more: found.cursor !== null, of: JSON.stringify(filter) };
  };
  const selectAll = async () => {
    setReading("Reading all that match…");
    try {
      setEvery(await readAll());
      setReading("");
    } catch (error) {
      setReading(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <div className="title">
        <h1>Trees in flight</h1>
        <RefreshControl refresh={refresh} waits={waits} updatedAt={trees.dataUpdatedAt} error={trees.error} />
      </div>
      <TreeFilter filter={filter} topology={config.data} change={(patch) => go({ ...patch, cursor: "" })} />
      <div className="toolbar actions">
        <OperatorButton kind="danger" disabled={targets.length === 0} press={() => setAction("fail")}>
          Fail…
        </OperatorButton>
        <OperatorButton disabled={targets.length === 0} press={() => setAction("reset")}>
          Reset timeout…
        </OperatorButton>
        <OperatorButton
          disabled={every === null && rows.length === 0}
          press={() => (every === null ? void selectAll() : setEvery(null))}
        >
          {every === null ? "Select all that match" : "Select none"}
        </OperatorButton>
        <ReadOnly />
        <LastWrite writes={writes} actions={WRITES} />
        <span role="status">
          {reading ||
            (every !== null
              ? `${every.more ? "the first" : "all"} ${plural(targets.length, "tree")} that match selected; updates wait`
              : chosen > 0
                ? `${plural(targets.length, "tree")} selected; updates wait`
                : said)}
        </span>
        <span className="spring" />
        <ExportButtons
          name={`${topology}-trees`}
          rows={async () => {
            const found = await readAll();
            return { rows: found.trees.map((tree) => ({ ...tree })), all: !found.more };
          }}
        />
      </div>
      <Loaded query={trees} what="trees">
        {rows.length === 0 ? (
          <Empty>
            {trees.data?.cursor != null
              ? "None found so far: there is more to search."
              : cursor !== ""
                ? "No more trees."
                : filtered
                  ? "No tree in flight is like that."
                  : "No tree is in flight."}
            {(filter.message_id !== "" || filter.message_id_base64 !== "") && (
              <Link to={findPath(topology, named(filter))}>Find the record, whatever became of it</Link>
            )}
          </Empty>
        ) : (
          <DataTable
            caption="Trees in flight"
            rows={rows}
            columns={columns}
            id={(tree) => tree.anchor}
            selection={readOnly ? undefined : { selected, setSelected }}
          />
        )}
      </Loaded>
      <Pager first={cursor === ""} next={trees.data?.cursor ?? null} go={(next) => go({ cursor: next })} />
      {action !== null && (
        <TreeAction
          action={action}
          topology={topology}
          targets={targets}
          all={every !== null}
          timeout={duration(config.data?.configuration.message_timeout)}
          done={(text) => {
            setSelected({});
            setEvery(null);
            setSaid(text);
          }}
          close={() => setAction(null)}
        />
      )}
    </>
  );
}

function named({ message_id, message_id_base64 }: typeof TREE_FILTER) {
  return { message_id: message_id_base64 === "" ? message_id : null, message_id_base64 };
}

/** When a tree expires, at the earliest and at the latest; what it waits for while its clock stands still. */
export function timeLeft(tree: TreeRow): string {
  const { time_left_earliest: earliest, time_left_latest: latest, wait } = tree;
  if (wait !== null) return waitText(tree, wait);
  if (earliest === null) return duration(null);
  return latest === null ? `${duration(earliest)} or more` : `${duration(earliest)} to ${duration(latest)}`;
}

function waitText(tree: TreeRow, { waits_for, since, until }: Schemas["Wait"]): string {
  const now = Date.parse(tree.tracked_at) / 1000 + tree.age;
  const age = since === null ? "" : ` since ${brief(Math.max(0, now - Date.parse(since) / 1000))}`;
  const end = until === null ? "" : `; expires ${instant(until)} at the earliest`;
  return `clock stands still: waits for ${waits_for}${age}${end}`;
}

function treeColumns(topology: string): ColumnDef<TreeRow>[] {
  return [
    {
      header: "Anchor",
      cell: ({ row: { original } }) => (
        <Link className="mono" to={`/t/${topology}/trees/${original.anchor}`}>
          {original.anchor}
        </Link>
      ),
      meta: { width: "w-id" },
    },
    { header: "Message id", cell: ({ row }) => <MessageId of={row.original} />, meta: { width: "w-wide" } },
    { header: "Spout", cell: ({ row }) => row.original.spout ?? <span className="faint">none yet</span> },
    { header: "State", cell: ({ row }) => <Status kind={row.original.state} />, meta: { width: "w-state" } },
    {
      header: "Bucket",
      cell: ({ row }) => row.original.bucket ?? duration(null),
      meta: { width: "w-short" },
    },
    { header: "Shard", accessorKey: "shard", meta: { number: true, width: "w-tiny" } },
    {
      header: "Age",
      cell: ({ row }) => duration(row.original.age),
      meta: { number: true, width: "w-short" },
    },
    {
      header: "Time left",
      cell: ({ row: { original } }) =>
        original.wait === null ? (
          timeLeft(original)
        ) : (
          <span className="wait">{capital(timeLeft(original))}</span>
        ),
      meta: { number: true, width: "w-left" },
    },
  ];
}
