import type { ColumnDef } from "@tanstack/react-table";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { CALL_KINDS } from "./functions";
import { count, plural } from "../../lib/format";
import { DataTable } from "../../components/table/DataTable";
import { Mark, Status } from "../../components/Mark";
import { Reason } from "../../components/Text";

type Cause = Schemas["CallCause"];

const SHOWN = 5;

/** Why calls had no result: the most frequent causes of a time, and all of them on demand. */
export function Causes({ of }: { of: Schemas["CallCounts"] }) {
  const [all, setAll] = useState(false);
  if (of.causes.length === 0) return <p className="faint">None: every call had a result.</p>;
  const shown = all ? of.causes : of.causes.slice(0, SHOWN);
  return (
    <>
      <DataTable
        caption="Causes"
        rows={shown}
        columns={COLUMNS}
        id={(one) => `${one.status} ${one.steps.join()} ${one.cause}`}
      />
      {of.causes.length > SHOWN && (
        <div className="toolbar">
          <button type="button" aria-expanded={all} onClick={() => setAll(!all)}>
            {all ? "Show fewer" : `Show ${plural(of.causes.length - SHOWN, "more cause")}`}
          </button>
        </div>
      )}
    </>
  );
}

/** The most frequent ones, in few words. */
export function CauseLines({ of, most }: { of: Schemas["CallCounts"]; most: number }) {
  if (of.causes.length === 0) return null;
  return (
    <ul className="causes" aria-label="Why calls had no result">
      {of.causes.slice(0, most).map((one) => (
        <li key={`${one.status} ${one.steps.join()} ${one.cause}`}>
          <Mark kind={CALL_KINDS[one.status]} />
          <b>{count(one.calls)}</b>
          <CauseText of={one} />
        </li>
      ))}
      {of.causes.length > most && (
        <li className="faint">and {plural(of.causes.length - most, "more cause")}</li>
      )}
    </ul>
  );
}

function CauseText({ of }: { of: Cause }) {
  return of.cause === "" ? <span className="faint">other causes</span> : <Reason text={of.cause} />;
}

const COLUMNS: ColumnDef<Cause>[] = [
  { header: "Calls", cell: ({ row }) => count(row.original.calls), meta: { number: true, width: "w-short" } },
  {
    header: "How",
    cell: ({ row: { original } }) => <Status kind={CALL_KINDS[original.status]} word={original.status} />,
    meta: { width: "w-state" },
  },
  {
    header: "Where",
    cell: ({ row }) => row.original.steps.join(", ") || <span className="faint">unknown</span>,
  },
  { header: "Why", cell: ({ row }) => <CauseText of={row.original} />, meta: { width: "w-wide" } },
];
