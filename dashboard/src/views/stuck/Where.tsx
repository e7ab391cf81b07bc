import { useInfiniteQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import type { Schemas } from "../../api/client";
import { whyQuery } from "../../api/queries";
import { DataTable } from "../../components/table/DataTable";
import { LookAgain } from "./LookAgain";
import { Loaded } from "../../components/Notice";
import { capital, count, duration, instant } from "../../lib/format";
import { printable } from "../../lib/text";
import { process } from "./process";

type Place = Schemas["Place"];
type Holding = Schemas["Held"] & { tuples: number };

/** Where the tuples of a tree are. */
export function Where({ topology, anchor }: { topology: string; anchor: string }) {
  const found = useInfiniteQuery(whyQuery(topology, anchor));
  const pages = found.data?.pages ?? [];
  const last = pages.at(-1);
  const places = pages.flatMap((page) => page.places);
  return (
    <section aria-label="Where it is" aria-busy={found.isFetching}>
      <h2>Where it is</h2>
      <Loaded query={found} what="where it is">
        {last && (
          <>
            <p>
              {last.complete ? <b>✓ Complete: </b> : null}
              {said(last, places.length + last.held.length)}
            </p>
            {places.length > 0 && (
              <DataTable
                caption="Places"
                rows={places}
                columns={COLUMNS}
                id={(place) => `${place.segment} ${place.stream} ${place.subscription ?? ""}`}
              />
            )}
            {last.held.length > 0 && <HeldBy held={last.held} />}
            {last.seen.length > 0 && <SeenBy seen={last.seen} />}
            {last.trace.length > 0 && <Timeline events={last.trace} />}
          </>
        )}
      </Loaded>
      <LookAgain found={found} />
    </section>
  );
}

/** Which bolts in plain Python have reported to have tuples of the tree: the longest first. */
function HeldBy({ held }: { held: Schemas["Held"][] }) {
  const counted = new Map<string, Holding>();
  for (const of of held) {
    const tuples = (counted.get(of.text)?.tuples ?? 0) + 1;
    counted.set(of.text, { ...of, tuples });
  }
  return (
    <>
      <h3>Who has it in plain Python</h3>
      <DataTable
        caption="Who has it in plain Python"
        rows={[...counted.values()]}
        columns={HELD}
        id={({ text }) => text}
      />
    </>
  );
}

/** Which steps have acked tuples of the tree's slab: the latest first, and the others after them. */
function SeenBy({ seen }: { seen: Schemas["Seen"][] }) {
  return (
    <>
      <h3>Who has seen it</h3>
      <p className="faint">
        A mark is of the tree's slab, the trees that were tracked with it: a step without one has not seen
        this tree either.
      </p>
      <DataTable caption="Steps" rows={seen} columns={SEEN} id={(one) => one.step} />
    </>
  );
}

/** What became of a traced tree, event by event, with the time since the one before. */
function Timeline({ events }: { events: Schemas["TraceEvent"][] }) {
  const times = events.map((one) => Date.parse(one.at));
  const timed = events.map((one, place) => ({
    ...one,
    since: ((times[place] ?? 0) - (times[place - 1] ?? times[place] ?? 0)) / 1000,
  }));
  return (
    <>
      <h3>Timeline</h3>
      <ol className="panel history">
        {timed.map((one) => (
          <li key={`${one.at} ${one.text}`}>
            <b>{printable(one.text)}</b>
            <span>
              {instant(one.at)}
              {one.since > 0 ? `, ${duration(one.since)} later` : ""}
            </span>
          </li>
        ))}
      </ol>
    </>
  );
}

/** The answer in a sentence. */
function said(last: Schemas["Why"], places: number): string {
  const rest = last.rest === "" ? "" : `${capital(printable(last.rest))}.`;
  if (!last.complete) return rest;
  const all =
    places === 0
      ? "there is no tuple of it."
      : places === 1
        ? "this place has all of its tuples."
        : `these ${count(places)} places have all of its tuples.`;
  return `${all} ${rest}`.trim();
}

const HELD: ColumnDef<Holding>[] = [
  { header: "Bolt", cell: ({ row: { original } }) => original.step },
  {
    header: "Process",
    cell: ({ row: { original } }) => <span className="wrap">{process(original)}</span>,
  },
  {
    header: "Tuples",
    cell: ({ row: { original } }) => count(original.tuples),
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

const SEEN: ColumnDef<Schemas["Seen"]>[] = [
  { header: "Step", cell: ({ row: { original } }) => original.step },
  {
    header: "Last acked tuples of its slab",
    cell: ({ row: { original } }) => (original.age === null ? "never" : `${duration(original.age)} ago`),
    meta: { number: true },
  },
  {
    header: "Batch",
    cell: ({ row: { original } }) => count(original.batch),
    meta: { number: true },
  },
];

const COLUMNS: ColumnDef<Place>[] = [
  {
    header: "Stream",
    cell: ({ row: { original } }) => original.stream || "a commit that tracks it",
  },
  { header: "For", cell: ({ row: { original } }) => original.subscription ?? "the first subscription" },
  {
    header: "Published",
    cell: ({ row: { original } }) =>
      original.since === null ? "not yet" : `${duration(original.since)} ago`,
    meta: { number: true },
  },
  {
    header: "Rows of it",
    cell: ({ row: { original } }) => count(original.rows),
    meta: { number: true },
  },
  {
    header: "Who has it",
    cell: ({ row: { original } }) => <span className="wrap">{printable(holder(original))}</span>,
  },
];

function holder(place: Place): string {
  if (place.commit) return `a commit under way: ${place.commit}`;
  const taken = place.taken_by === null ? "nobody" : place.taken_by.text;
  if (!place.held_by) return taken;
  return place.taken_by === null ? place.held_by : `${place.held_by}, ${taken}`;
}
