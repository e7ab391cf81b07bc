import { useQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import type { ReactNode } from "react";
import { deadLetterGroupsQuery } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Reason } from "../../components/Text";
import { useRefresh } from "../../hooks/refresh";
import { count, instant, plural } from "../../lib/format";
import { isOfGroup } from "../activity/activity";
import { LastWrite, useLatestWrites } from "../activity/LastWrite";
import type { Ask } from "./Action";
import { exactly, groupId, ofGroup, readGroups, type Filter, type Group, type Matching } from "./filter";

/** Dead letters after which they are counted again no more often than once in so many seconds. */
const MANY = 10_000;
const MANY_SECONDS = 60;
const WRITES = ["replay", "discard"];
/** Most groups that are shown: the largest. */
const SHOWN = 100;

/** How many dead letters have each cause, step and kind, and what can be done with each of these groups. */
export function LetterGroups({
  topology,
  asked,
  filtered,
  waits,
  ask,
  said,
  filter,
  show,
}: {
  topology: string;
  asked: Matching;
  filtered: boolean;
  waits: boolean;
  ask: Ask;
  said: string;
  filter: ReactNode;
  show: (patch: Partial<Filter>) => void;
}) {
  const refresh = useRefresh();
  const found = useQuery({
    ...deadLetterGroupsQuery(topology, asked, readGroups),
    refetchInterval: ({ state }) =>
      waits || refresh.paused
        ? false
        : 1000 * Math.max((state.data?.count ?? 0) > MANY ? MANY_SECONDS : 5, refresh.seconds),
  });
  const { groups = [], count: total = 0, until = "", more = false } = found.data ?? {};
  const all = { matching: asked, until, count: total };
  const writes = useLatestWrites(topology);
  const columns: ColumnDef<Group>[] = [
    {
      header: "Rows",
      accessorKey: "count",
      cell: ({ row }) => count(row.original.count),
      meta: { number: true, width: "w-short" },
    },
    {
      header: "Cause",
      accessorFn: (group) => group.cause ?? "",
      cell: ({ row: { original } }) => <Cause of={original} />,
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
      header: "Oldest",
      accessorKey: "oldest",
      cell: ({ row }) => instant(row.original.oldest),
      meta: { width: "w-when" },
    },
    {
      header: "Newest",
      accessorKey: "newest",
      cell: ({ row }) => instant(row.original.newest),
      meta: { width: "w-when" },
    },
    {
      header: "What to do",
      enableSorting: false,
      cell: ({ row: { original } }) => {
        const target = { matching: ofGroup(asked, original), until, count: original.count };
        return (
          <span className="group-actions">
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
            <OperatorButton disabled={false} press={() => ask("replay", target)}>
              Replay…
            </OperatorButton>
            <OperatorButton disabled={false} press={() => ask("discard", target)}>
              Discard…
            </OperatorButton>
            <LastWrite
              writes={writes}
              actions={WRITES}
              fits={(one) => isOfGroup(one, original)}
              what="of this cause"
            />
          </span>
        );
      },
    },
  ];
  return (
    <>
      <div className="title">
        <h1>Dead letters</h1>
        <span className="faint">
          {found.data &&
            `${plural(total, "row")}${more ? " and more" : ""} of ${plural(groups.length, "cause")}`}
        </span>
        <RefreshControl
          refresh={refresh}
          waits={waits}
          quiet={total > MANY ? MANY_SECONDS : 5}
          updatedAt={found.dataUpdatedAt}
          error={found.error}
        />
      </div>
      {filter}
      <div className="toolbar actions">
        <OperatorButton kind="primary" disabled={total === 0} press={() => ask("replay", all)}>
          {filtered ? "Replay these…" : "Replay all…"}
        </OperatorButton>
        <OperatorButton kind="danger" disabled={total === 0} press={() => ask("discard", all)}>
          {filtered ? "Discard these…" : "Discard all…"}
        </OperatorButton>
        <ReadOnly />
        <LastWrite writes={writes} actions={WRITES} />
        <span role="status">{said}</span>
      </div>
      <Loaded query={found} what="dead letters">
        {groups.length === 0 ? (
          <Empty>
            {filtered ? "No dead letter is like that." : "No row was given up: there is no dead letter."}
          </Empty>
        ) : (
          <DataTable
            caption="Dead letters by cause"
            sortable
            rows={groups.slice(0, SHOWN)}
            columns={columns}
            id={groupId}
          />
        )}
        {groups.length > SHOWN && (
          <p className="faint">
            And {plural(groups.length - SHOWN, "smaller cause")}: narrow the filter to see them.
          </p>
        )}
      </Loaded>
    </>
  );
}

/** What the reasons of a group have in common, and one of them where that leaves something out. */
export function Cause({ of }: { of: Group }) {
  if (of.cause === null || of.cause === of.reason)
    return (
      <span className="cause">
        <Reason text={of.reason} />
      </span>
    );
  return (
    <span className="cause">
      <Reason text={of.cause} />
      <span className="faint">
        <span>such as</span> <Reason text={of.reason} />
      </span>
    </span>
  );
}
