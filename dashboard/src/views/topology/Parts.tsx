import type { ColumnDef } from "@tanstack/react-table";
import { useMemo, type ReactNode } from "react";
import { Link } from "react-router";
import type { Schemas } from "../../api/client";
import { DataTable } from "../../components/table/DataTable";
import { Meter } from "../../components/Health";
import { count, duration, NOTHING, plural } from "../../lib/format";

type Shard = Schemas["ShardState"];
type Step = Schemas["Step"];
/** A step, and its totals over all processes that ran it. */
type Bolt = Step & { done: Schemas["StepTotals"] | undefined };
interface Spout {
  name: string;
  step: Step | undefined;
  letters: number;
}

/** A reader of a stream, or what waits for its first one. */
interface Reader {
  stream: Schemas["StreamState"];
  of: Schemas["SubscriptionState"] | undefined;
}

/** What a topology is made of: shards, spouts, bolts, and the streams between them. */
export function Parts({ of }: { of: Schemas["TopologyState"] }) {
  const { topology, shards, spouts, steps, streams } = of;
  const shardTable = useMemo(() => shardColumns(topology), [topology]);
  const spoutTable = useMemo(() => spoutColumns(topology), [topology]);
  const named: Spout[] = spouts.map((name) => ({
    name,
    step: steps.find((step) => step.name === name && step.kind === "spout"),
    letters: of.dead_letters_of[name] ?? 0,
  }));
  const readers: Reader[] = streams.flatMap((stream): Reader[] =>
    stream.subscriptions.length === 0
      ? [{ stream, of: undefined }]
      : stream.subscriptions.map((one) => ({ stream, of: one })),
  );
  const done = new Map(of.step_totals.map((one) => [one.step, one]));
  const bolts: Bolt[] = steps
    .filter((step) => step.kind !== "spout")
    .map((step) => ({ ...step, done: done.get(step.name) }));
  return (
    <>
      <Part
        title="Shards"
        none="None: tracking is off, everything is acked at once."
        empty={shards.length === 0}
      >
        <DataTable
          caption="Shards"
          rows={shards}
          columns={shardTable}
          id={(shard) => String(shard.shard)}
          sortable
          dense
        />
      </Part>
      <Part title="Spouts" none="None has tracked anything yet." empty={named.length === 0}>
        <DataTable
          caption="Spouts"
          rows={named}
          columns={spoutTable}
          id={(spout) => spout.name}
          sortable
          dense
        />
      </Part>
      <Part title="Bolts" none="None has said its name yet." empty={bolts.length === 0}>
        <DataTable caption="Bolts" rows={bolts} columns={BOLTS} id={(step) => step.name} sortable dense />
      </Part>
      {readers.length > 0 && (
        <Part title="Streams" none="" empty={false}>
          <DataTable
            caption="Streams"
            rows={readers}
            columns={STREAMS}
            id={({ stream, of: reader }) => `${stream.stream} ${reader?.subscription ?? ""}`}
            sortable
            dense
          />
        </Part>
      )}
    </>
  );
}

function Part({
  title,
  none,
  empty,
  children,
}: {
  title: string;
  none: string;
  empty: boolean;
  children: ReactNode;
}) {
  return (
    <section id={title.toLowerCase()}>
      <h2>{title}</h2>
      {empty ? <p className="faint">{none}</p> : children}
    </section>
  );
}

/** By the store's clock: the browser's may be another. */
function ago(step: Step | undefined): string {
  return step?.age == null ? NOTHING : `${duration(step.age)} ago`;
}

const number = { number: true };

function counted(header: string, take: (shard: Shard) => number): ColumnDef<Shard> {
  return { header, accessorFn: take, cell: ({ row }) => count(take(row.original)), meta: number };
}

function shardColumns(topology: string): ColumnDef<Shard>[] {
  return [
    {
      header: "Shard",
      accessorKey: "shard",
      cell: ({ row: { original } }) => (
        <Link to={`/t/${topology}/trees?shard=${original.shard}`}>{original.shard}</Link>
      ),
      meta: number,
    },
    counted("In flight", (shard) => shard.pending),
    {
      header: "Outstanding",
      accessorFn: (shard) => shard.outstanding / shard.limit,
      cell: ({ row: { original } }) => (
        <Meter value={original.outstanding / original.limit} label={`Shard ${original.shard}, how full`} />
      ),
    },
    counted("Tracked", (shard) => shard.counters.tracked),
    counted("Acked", (shard) => shard.counters.acked),
    counted("Failed", (shard) => shard.counters.failed),
    counted("Expired", (shard) => shard.counters.expired),
    {
      header: "Last tick",
      accessorFn: (shard) => shard.rotation_age ?? Infinity,
      cell: ({ row: { original } }) =>
        original.rotation_age === null ? "never" : `${duration(original.rotation_age)} ago`,
      meta: number,
    },
    counted("Backlog", (shard) => shard.backlog),
    {
      header: "Oldest",
      accessorFn: (shard) => shard.oldest_age ?? -1,
      cell: ({ row }) => duration(row.original.oldest_age),
      meta: number,
    },
  ];
}

function spoutColumns(topology: string): ColumnDef<Spout>[] {
  return [
    { header: "Name", accessorKey: "name" },
    { header: "Reads", accessorFn: ({ step }) => step?.reads.join(", ") || NOTHING },
    { header: "Application", accessorFn: ({ step }) => step?.application || NOTHING },
    { header: "Query", accessorFn: ({ step }) => step?.query || step?.query_id || NOTHING },
    {
      header: "Last seen",
      accessorFn: ({ step }) => step?.last_seen ?? "",
      cell: ({ row }) => ago(row.original.step),
      meta: number,
    },
    {
      header: "Look at",
      id: "links",
      enableSorting: false,
      cell: ({ row: { original } }) => (
        <span className="links">
          <Link to={`/t/${topology}/trees?spout=${original.name}`}>trees in flight</Link>
          <Link to={`/t/${topology}/outcomes?spout=${original.name}`}>failures</Link>
          <Link to={`/t/${topology}/dead-letters?spout=${original.name}`}>
            {original.letters > 0 ? plural(original.letters, "dead letter") : "dead letters"}
          </Link>
        </span>
      ),
    },
  ];
}

const BOLTS: ColumnDef<Bolt>[] = [
  { header: "Name", accessorKey: "name" },
  { header: "Kind", accessorKey: "kind" },
  { header: "Reads", accessorFn: (step) => step.reads.join(", ") || NOTHING },
  { header: "Emits", accessorFn: (step) => step.emits.join(", ") || NOTHING },
  {
    header: "Acked",
    accessorFn: (bolt) => bolt.done?.tuples ?? -1,
    cell: ({ row }) => count(row.original.done?.tuples),
    meta: number,
  },
  {
    header: "Failed",
    accessorFn: (bolt) => bolt.done?.failed ?? -1,
    cell: ({ row }) => count(row.original.done?.failed),
    meta: number,
  },
  {
    header: "Trees’ age, p99",
    accessorFn: (bolt) => bolt.done?.age.p99 ?? -1,
    cell: ({ row }) => duration(row.original.done?.age.p99),
    meta: number,
  },
  { header: "Application", accessorKey: "application" },
  { header: "Query", accessorFn: (step) => step.query || step.query_id || NOTHING },
  {
    header: "Batch",
    accessorKey: "batch",
    cell: ({ row }) => count(row.original.batch),
    meta: number,
  },
  {
    header: "Took",
    accessorKey: "seconds",
    cell: ({ row }) => (row.original.seconds > 0 ? duration(row.original.seconds) : NOTHING),
    meta: number,
  },
  {
    header: "Acks late",
    accessorKey: "late",
    cell: ({ row }) => count(row.original.late),
    meta: number,
  },
  {
    header: "Last seen",
    accessorFn: (step) => step.last_seen ?? "",
    cell: ({ row }) => ago(row.original),
    meta: number,
  },
];

/** A stream without subscription, and what it has sent so far. */
function nobody({ rows_unheard: unheard }: Schemas["StreamState"]): string {
  return unheard === 0 ? "waits for the first" : `none: nobody has to ack ${plural(unheard, "row")}`;
}

const STREAMS: ColumnDef<Reader>[] = [
  { header: "Stream", accessorFn: ({ stream }) => stream.stream },
  { header: "Kind", accessorFn: ({ stream }) => stream.kind },
  { header: "Subscription", accessorFn: ({ stream, of }) => of?.subscription ?? nobody(stream) },
  {
    header: "Rows acked",
    accessorFn: ({ of }) => of?.rows_acked ?? 0,
    cell: (cell) => count(cell.getValue<number>()),
    meta: number,
  },
  {
    header: "Rows behind",
    accessorFn: ({ of }) => of?.rows_behind ?? 0,
    cell: (cell) => count(cell.getValue<number>()),
    meta: number,
  },
  {
    header: "Rows dropped",
    accessorFn: ({ of }) => of?.rows_dropped ?? 0,
    cell: (cell) => count(cell.getValue<number>()),
    meta: number,
  },
  {
    header: "Acks late",
    accessorFn: ({ of }) => of?.acks_late ?? 0,
    cell: (cell) => count(cell.getValue<number>()),
    meta: number,
  },
  {
    header: "Stale",
    accessorFn: ({ of }) => of?.rows_stale ?? 0,
    cell: (cell) => count(cell.getValue<number>()),
    meta: number,
  },
  {
    header: "Received",
    accessorFn: ({ of }) => of?.rows_received ?? 0,
    cell: ({
      row: {
        original: { stream, of },
      },
    }) => (stream.kind === "external" ? count(of?.rows_received ?? 0) : NOTHING),
    meta: number,
  },
  {
    header: "Oldest unread",
    accessorFn: ({ of }) => of?.unread_age ?? -1,
    cell: ({ row }) => duration(row.original.of?.unread_age),
    meta: number,
  },
  {
    header: "Bytes",
    accessorFn: ({ stream }) => stream.bytes,
    cell: (cell) => count(cell.getValue<number>()),
    meta: number,
  },
];
