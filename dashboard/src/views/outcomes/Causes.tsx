import type { UseQueryResult } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import type { Schemas } from "../../api/client";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { Sparkline } from "../../components/Sparkline";
import { DataTable } from "../../components/table/DataTable";
import { count, instant, percent, plural } from "../../lib/format";
import { trend } from "./trend";
import { Cause } from "../dead-letters/Groups";
import { exactly, groupId } from "../dead-letters/filter";

type FailureGroup = Schemas["FailureGroup"];

/** Most causes that are shown: the largest. */
const SHOWN = 100;

/** How many trees have failed or expired for each cause, and at which step. A click shows them. */
export function OutcomeCauses({
  found,
  filtered,
  show,
}: {
  found: UseQueryResult<Schemas["FailureGroups"]>;
  filtered: boolean;
  show: (patch: { cause: string; step: string; status: string }) => void;
}) {
  const { groups = [], trees = 0, cursor = null } = found.data ?? {};
  const columns: ColumnDef<FailureGroup>[] = [
    {
      header: "Trees",
      accessorKey: "count",
      cell: ({ row }) => count(row.original.count),
      meta: { number: true, width: "w-short" },
    },
    {
      header: "Share",
      accessorFn: (group) => group.count,
      cell: ({ row }) => percent(row.original.count / trees),
      meta: { number: true, width: "w-short" },
    },
    {
      header: "Cause",
      accessorFn: (group) => group.cause ?? "",
      cell: ({ row: { original } }) =>
        original.status === "expired" && original.reason === "" ? (
          <span className="faint">message timeout</span>
        ) : (
          <Cause of={original} />
        ),
      meta: { width: "w-cause" },
    },
    {
      header: "Kind",
      accessorKey: "status",
      cell: ({ row: { original } }) => original.status && <Status kind={original.status} />,
      meta: { width: "w-state" },
    },
    {
      header: "Step",
      accessorFn: (group) => group.step ?? "",
      cell: ({ row: { original } }) => original.step || <span className="faint">not known</span>,
    },
    {
      header: "Last hour",
      accessorFn: ({ lately }) => trend(lately).late,
      cell: ({ row }) => <Trend of={row.original} />,
    },
    {
      header: "First",
      accessorKey: "oldest",
      cell: ({ row }) => instant(row.original.oldest),
      meta: { width: "w-when" },
    },
    {
      header: "Last",
      accessorKey: "newest",
      cell: ({ row }) => instant(row.original.newest),
      meta: { width: "w-when" },
    },
    {
      header: "Look",
      enableSorting: false,
      cell: ({ row: { original } }) => (
        <button
          type="button"
          onClick={() =>
            show({
              cause: exactly(original.cause),
              step: exactly(original.step),
              status: original.status ?? "",
            })
          }
        >
          Show
        </button>
      ),
    },
  ];
  return (
    <Loaded query={found} what="causes">
      {groups.length === 0 ? (
        <Empty>
          {filtered
            ? "Nothing that failed or expired is like that."
            : "Nothing has failed or expired of late."}
        </Empty>
      ) : (
        <>
          <p className="faint">
            {cursor === null ? "" : "Of the latest "}
            {plural(trees, "tree")} of {plural(groups.length, "cause")}.
          </p>
          <DataTable
            caption="Failures and expirations by cause"
            sortable
            rows={groups.slice(0, SHOWN)}
            columns={columns}
            id={groupId}
          />
        </>
      )}
    </Loaded>
  );
}

/** Its line over the last hour, and whether the last half of that has more than the first. */
function Trend({ of: { lately } }: { of: FailureGroup }) {
  const { early, late, words } = trend(lately);
  if (early + late === 0) return <span className="faint">none</span>;
  return (
    <span className="trend" title={`${count(late)} in the last half hour, ${count(early)} in the one before`}>
      <Sparkline
        values={lately}
        label={`${count(late)} in the last half hour, ${count(early)} in the one before`}
      />
      {words}
    </span>
  );
}
