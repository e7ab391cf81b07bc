import { useInfiniteQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useParams } from "react-router";
import type { Schemas } from "../../api/client";
import { stuckQuery } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { LookAgain } from "./LookAgain";
import { Empty, Loaded } from "../../components/Notice";
import { count, duration, instant } from "../../lib/format";
import { printable } from "../../lib/text";
import { process } from "./process";

interface Row {
  of: Schemas["Stuck"];
  share: Schemas["Share"];
}

/** What each subscription has not acked, and who has it. It reads what streams hold: it is asked by hand. */
export function Stuck() {
  const { topology = "" } = useParams();
  const found = useInfiniteQuery(stuckQuery(topology));
  const rows = (found.data?.pages ?? []).flatMap((page) =>
    page.stuck.flatMap((of) => of.shares.map((share): Row => ({ of, share }))),
  );
  const held = found.data?.pages[0]?.held ?? [];
  return (
    <>
      <div className="title">
        <h1>In streams</h1>
      </div>
      <p className="faint">
        The unacked rows of each subscription, by the reader that has taken them. A row without a reader waits
        for its job.
      </p>
      <Loaded query={found} what="what lies in streams">
        {rows.length > 0 ? (
          <DataTable
            caption="In streams"
            rows={rows}
            columns={COLUMNS}
            id={({ of, share }) => `${of.stream} ${of.subscription ?? ""} ${share.taken_by?.reader ?? ""}`}
          />
        ) : (
          <Empty>
            <p>Nothing: every subscription has acked all that was written.</p>
          </Empty>
        )}
        {held.length > 0 && (
          <>
            <h2>In plain Python</h2>
            <p className="faint">
              Tuples of bolts in plain Python lie in no stream. This is what their processes have reported:
              nobody knows what these have done since.
            </p>
            <DataTable
              caption="In plain Python"
              rows={held}
              columns={HELD}
              id={({ host, pid, program, step }) => `${step} ${host} ${pid} ${program}`}
            />
          </>
        )}
      </Loaded>
      <LookAgain found={found} />
    </>
  );
}

const HELD: ColumnDef<Schemas["HeldTrees"]>[] = [
  { header: "Bolt", cell: ({ row: { original } }) => original.step },
  {
    header: "Process",
    cell: ({ row: { original } }) => <span className="wrap">{process(original)}</span>,
  },
  {
    header: "Trees",
    cell: ({ row: { original } }) =>
      `${count(original.trees)}${original.partly || original.more > 0 ? " or more" : ""}`,
    meta: { number: true },
  },
  {
    header: "Since",
    cell: ({ row: { original } }) => instant(original.since),
    meta: { number: true },
  },
  {
    header: "Said last",
    cell: ({ row: { original } }) => instant(original.reported),
    meta: { number: true },
  },
];

const COLUMNS: ColumnDef<Row>[] = [
  { header: "Stream", cell: ({ row: { original } }) => original.of.stream },
  { header: "For", cell: ({ row: { original } }) => original.of.subscription ?? "the first subscription" },
  {
    header: "Who has it",
    cell: ({ row: { original } }) => (
      <span className="wrap">{printable(original.share.taken_by?.text ?? "nobody")}</span>
    ),
  },
  {
    header: "Rows",
    cell: ({ row: { original } }) => `${count(original.share.rows)}${original.of.partly ? " or more" : ""}`,
    meta: { number: true },
  },
  {
    header: "Segments",
    cell: ({ row: { original } }) => count(original.share.segments),
    meta: { number: true },
  },
  {
    header: "Oldest",
    cell: ({ row: { original } }) => `${duration(original.share.oldest)} ago`,
    meta: { number: true },
  },
];
