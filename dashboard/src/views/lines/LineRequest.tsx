import { useQueries, useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { Problem, type Schemas } from "../../api/client";
import { knownFunctionQuery } from "../../api/functions";
import { knownTreeQuery, lineRequestQuery } from "../../api/queries";
import { Status, type Kind } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Rows } from "../../components/Rows";
import { MessageId, Reason } from "../../components/Text";
import { useRefresh } from "../../hooks/refresh";
import { useUrl } from "../../hooks/url";
import { duration, instant, plural, stepBatch } from "../../lib/format";
import { findPath } from "../../lib/records";
import { callPath, REQUEST } from "../functions/functions";
import { failedWith, since, stands, waiting, type Stand } from "./lines";
import { Where } from "../stuck/Where";

type Section = Schemas["SectionState"];

const DEFAULTS = { section: "" };
const KINDS: Record<Stand, Kind> = { done: "finished", group: "waiting", now: "pending", later: "waiting" };
const WORDS: Record<Stand, string> = {
  done: "done",
  group: "done, and waits for others of its group",
  now: "under way",
  later: "waits for the section before",
};

/** One request of a line: how far it is in each section, and where its tuples are. */
export function LineRequest() {
  const { topology = "", anchor = "" } = useParams();
  const refresh = useRefresh();
  const [{ section: chosen }, change] = useUrl(DEFAULTS);
  const found = useQuery({
    ...lineRequestQuery(topology, anchor),
    refetchInterval: refresh.interval,
  });
  const sections = found.data?.sections ?? [];
  const own = sections.at(-1);
  const gone = found.error instanceof Problem && found.error.kind === "unknown-line";
  const stand = stands(sections);
  const now = stand.findIndex((one) => one === "now" || one === "group");
  const over = own !== undefined && now < 0;
  // The failure of a tree is kept for some time; the first section's failure has the reason.
  const ends = useQueries({
    queries: sections.map((section) => ({
      ...knownTreeQuery(topology, section.anchor),
      enabled: over,
    })),
  });
  const outcomes = over ? ends.map((end) => end.data?.outcome ?? null) : [];
  const shown = sections.find((one) => String(one.section) === chosen) ?? sections[now];
  return (
    <>
      <div className="title">
        <h1>
          Request <span className="mono">{anchor}</span>
        </h1>
        <RefreshControl refresh={refresh} updatedAt={found.dataUpdatedAt} error={gone ? null : found.error} />
      </div>
      {gone ? (
        <Empty>
          <p>This is the anchor of no line of the topology.</p>
          <p>
            <Link to={`/t/${topology}/lines`}>All lines</Link>
          </p>
        </Empty>
      ) : (
        <Loaded query={found} what="the request">
          {found.data && own && (
            <div className="columns">
              <Facts topology={topology} of={found.data} own={own} over={over} interval={refresh.interval} />
              <section aria-labelledby="sections">
                <h2 id="sections">Sections</h2>
                <ol className="panel history steps">
                  {sections.map((one, place) => (
                    <li key={one.section} data-stand={stand[place]}>
                      <SectionLine
                        topology={topology}
                        of={one}
                        stand={stand[place] ?? "later"}
                        since={since(sections, place)}
                        outcome={outcomes[place] ?? null}
                        shown={one === shown}
                        show={() => change({ section: place === now ? "" : String(one.section) })}
                      />
                    </li>
                  ))}
                </ol>
              </section>
            </div>
          )}
          {shown?.tree != null && (
            <>
              <h2>Section {shown.section}</h2>
              <Where key={shown.anchor} topology={topology} anchor={shown.anchor} />
            </>
          )}
        </Loaded>
      )}
    </>
  );
}

function Facts({
  topology,
  of,
  own,
  over,
  interval,
}: {
  topology: string;
  of: Schemas["LineRequest"];
  /** Its last section; the tree of that section is the tree of its row. */
  own: Section;
  over: boolean;
  interval: number | false;
}) {
  const tree = useQuery({
    ...knownTreeQuery(topology, own.anchor),
    refetchInterval: interval,
  });
  // The line of a function has its name, and so has the spout of its calls.
  const request = own.tree?.message_id ?? tree.data?.message_id ?? "";
  const called = useQuery({
    ...knownFunctionQuery(of.line),
    enabled: REQUEST.test(request),
  });
  const outcome = tree.data?.outcome ?? null;
  const named = tree.data ?? own.tree;
  return (
    <section aria-label="Facts">
      <h2>Facts</h2>
      <Rows
        rows={[
          [
            "State",
            outcome ? (
              <Status key="" kind={outcome.status} />
            ) : over ? (
              <Status key="" kind="finished" word="over: how it ended is not kept" />
            ) : (
              <Status key="" kind="pending" />
            ),
          ],
          ...(outcome && outcome.reason !== ""
            ? ([["Reason", <Reason key="" text={outcome.reason} whole />]] as const)
            : []),
          ...(outcome && outcome.step !== "" ? ([["Failed by", stepBatch(outcome)]] as const) : []),
          ...(named && named.message_id_base64 !== null
            ? ([
                [
                  "Record",
                  <Link key="" to={findPath(topology, named)}>
                    <MessageId of={named} whole />
                  </Link>,
                ],
                ["Spout", named.spout ?? "none yet"],
              ] as const)
            : []),
          ...(called.data?.topology === topology
            ? ([
                [
                  "Call",
                  <Link key="" to={callPath(of.line, request)}>
                    of function {of.line}
                  </Link>,
                ],
              ] as const)
            : []),
          [
            "Line",
            <Link key="" to={`/t/${topology}/lines`}>
              {of.line}
            </Link>,
          ],
          [
            "Group",
            <span key="" className="mono">
              {of.group}
            </span>,
          ],
        ]}
      />
    </section>
  );
}

/** A section: how far it is, since when, what waits at its end, and where its tree and its tuples are. */
function SectionLine({
  topology,
  of,
  stand,
  since: from,
  outcome,
  shown,
  show,
}: {
  topology: string;
  of: Section;
  stand: Stand;
  since: string | null;
  /** How its tree has failed or expired. */
  outcome: Schemas["TreeOutcome"] | null;
  shown: boolean;
  show: () => void;
}) {
  const there = waiting(of.gathered);
  return (
    <>
      <b>
        {outcome === null || outcome.status === "acked" ? (
          <Status kind={KINDS[stand]} word={WORDS[stand]} />
        ) : (
          <Status kind={outcome.status} />
        )}
      </b>
      <span>
        Section {of.section}, {of.stream === null ? "ends with the request" : `ends in ${of.stream}`}
        {from === null ? "" : `, since ${instant(from)}`}
      </span>
      {outcome !== null && outcome.reason !== "" && (
        <span>
          {failedWith(outcome.reason) !== "" ? (
            `It failed with the one that ends in ${failedWith(outcome.reason)}.`
          ) : (
            <>
              {outcome.step === "" ? "" : `By ${stepBatch(outcome)}: `}
              <Reason text={outcome.reason} whole />
            </>
          )}
        </span>
      )}
      {!of.read && (
        <span>
          <Status kind="failed" word={`No step reads ${of.stream}.`} />
        </span>
      )}
      {stand !== "done" && of.stream !== null && (
        <span>
          {there.rows === 0
            ? "No row has come to its end yet."
            : `${plural(there.rows, "row")} of its group ${there.rows === 1 ? "waits" : "wait"} there, for ${
                of.gathered.length === 1 ? "task" : "tasks"
              } ${there.tasks}${there.age === null ? "" : `, the first for ${duration(there.age)}`}.`}
        </span>
      )}
      <span className="links wrapped">
        {of.tree === null ? (
          <span className="faint">
            {of.released
              ? "Its rows have gone on, or were dropped."
              : "The ledger no longer knows a tree of it."}
          </span>
        ) : (
          <>
            <Link to={`/t/${topology}/trees/${of.anchor}`}>its tree</Link>
            {!shown && of.tree.state !== "finished" && (
              <button type="button" className="plain" onClick={show}>
                where its tuples are
              </button>
            )}
          </>
        )}
      </span>
    </>
  );
}
