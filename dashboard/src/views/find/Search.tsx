/** The search for a record: all its attempts, and its dead letters. */

import { useInfiniteQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useMemo } from "react";
import { Link } from "react-router";
import { recordsQuery } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { MessageId, Reason } from "../../components/Text";
import { count, duration, instant, stepBatch } from "../../lib/format";
import { addUp, messageIdQuery, type FoundAttempt } from "../../lib/records";

/** Calls of one search, until somebody asks for more: the service looks through a bounded piece for each. */
const MOST_CALLS = 20;

/**
 * What is found of one message id. On the page of a tree, which is given, it is one piece of the search until
 * somebody asks for more.
 */
export function Search({ topology, id, tree }: { topology: string; id: string; tree?: string }) {
  const found = useInfiniteQuery(
    recordsQuery(topology, messageIdQuery(id), tree === undefined ? MOST_CALLS : 1),
  );
  const answers = useMemo(() => found.data?.pages.flat() ?? [], [found.data]);
  const all = useMemo(() => addUp(answers), [answers]);
  const columns = useMemo(() => attemptColumns(topology, tree), [topology, tree]);
  return (
    <section aria-label={tree === undefined ? "By message id" : "Attempts"}>
      <h2>
        {tree !== undefined ? (
          "Its attempts"
        ) : (
          <>
            Message id{" "}
            {answers[0] ? <MessageId of={answers[0]} whole /> : <span className="mono wrap">{id}</span>}
          </>
        )}
      </h2>
      <Loaded query={found} what="the record">
        {all.records.map((record) => (
          <section key={record.spout} aria-label={`Spout ${record.spout}`}>
            <h3>Spout {record.spout}</h3>
            <DataTable
              caption={`Attempts, spout ${record.spout}`}
              rows={record.attempts}
              columns={columns}
              id={(one) => one.anchor ?? `${one.state} ${one.at ?? ""}`}
            />
            {record.dead_letters.map((letter) => (
              <p key={letter.id} className="toolbar">
                Dead letter since {instant(letter.at)}:
                <Link className="mono wrap" to={`/t/${topology}/dead-letters/${letter.id}`}>
                  {letter.id}
                </Link>
              </p>
            ))}
          </section>
        ))}
        {all.records.length === 0 && (
          <Empty>
            {all.cursor !== null
              ? "Nothing found so far: there is more to search."
              : "Nothing is known of this message id. It was never tracked, it was acked and confirmed, or it ended too long ago."}
          </Empty>
        )}
        <div className="toolbar">
          <span role={tree === undefined ? "status" : undefined} className="faint">
            Looked at {count(all.looked)} of {count(all.of)} trees and dead letters.
          </span>
          {found.hasNextPage && (
            <button
              type="button"
              disabled={found.isFetchingNextPage}
              onClick={() => void found.fetchNextPage()}
            >
              Search on
            </button>
          )}
        </div>
      </Loaded>
    </section>
  );
}

function attemptColumns(topology: string, tree: string | undefined): ColumnDef<FoundAttempt>[] {
  return [
    {
      header: "Attempt",
      cell: ({ row }) => row.original.number ?? duration(null),
      meta: { width: "w-short" },
    },
    { header: "State", cell: ({ row }) => <Status kind={row.original.state} />, meta: { width: "w-state" } },
    {
      header: "Reason",
      cell: ({ row: { original } }) =>
        original.reason !== "" || original.state === "failed" ? (
          <Reason text={original.reason} />
        ) : (
          <span className="faint">{original.state === "expired" ? "message timeout" : duration(null)}</span>
        ),
      meta: { width: "w-wide" },
    },
    { header: "Step", cell: ({ row }) => stepBatch(row.original) || duration(null) },
    { header: "Tracked", cell: ({ row }) => instant(row.original.tracked_at), meta: { width: "w-when" } },
    { header: "Ended", cell: ({ row }) => instant(row.original.at), meta: { width: "w-when" } },
    {
      header: "Tree",
      cell: ({ row: { original } }) =>
        original.anchor === null ? (
          <span className="faint">not kept</span>
        ) : original.anchor === tree ? (
          <span className="faint">this one</span>
        ) : (
          <Link className="mono" to={`/t/${topology}/trees/${original.anchor}`}>
            {original.anchor}
          </Link>
        ),
      meta: { width: "w-id" },
    },
  ];
}
