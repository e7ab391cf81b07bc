import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link, useParams } from "react-router";
import { Problem } from "../../api/client";
import { deadLetterQuery } from "../../api/queries";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Rows } from "../../components/Rows";
import { MessageId, Reason } from "../../components/Text";
import { useRefresh } from "../../hooks/refresh";
import { count, instant, stepBatch } from "../../lib/format";
import { LetterAction, type LetterVerb } from "./Action";
import { RowText } from "./Rows";
import type { DeadLetter } from "./filter";

/** One dead letter: its attempts, and its row. */
export function Letter() {
  const { topology = "", id = "" } = useParams();
  const refresh = useRefresh();
  const [verb, setVerb] = useState<LetterVerb | null>(null);
  const [said, setSaid] = useState("");
  const found = useQuery({
    ...deadLetterQuery(topology, id),
    refetchInterval: refresh.paused ? false : Math.max(5, refresh.seconds) * 1000,
  });
  const gone = found.error instanceof Problem && found.error.status === 404;
  const letter = gone ? undefined : found.data;
  return (
    <>
      <div className="title">
        <h1>
          Dead letter <span className="mono">{id}</span>
        </h1>
        <RefreshControl
          refresh={refresh}
          quiet={5}
          updatedAt={found.dataUpdatedAt}
          error={gone ? null : found.error}
        />
      </div>
      <div className="toolbar actions">
        <OperatorButton kind="primary" disabled={letter === undefined} press={() => setVerb("replay")}>
          Replay…
        </OperatorButton>
        <OperatorButton kind="danger" disabled={letter === undefined} press={() => setVerb("discard")}>
          Discard…
        </OperatorButton>
        <ReadOnly />
        <span role="status">{said}</span>
      </div>
      {gone ? (
        <Empty>
          <p>There is no such dead letter: it was replayed or discarded, or never was.</p>
          <p>
            <Link to={`/t/${topology}/dead-letters`}>Dead letters</Link>
          </p>
        </Empty>
      ) : (
        <Loaded query={found} what="the dead letter">
          {letter && (
            <div className="columns">
              <Facts topology={topology} of={letter} />
              <Attempts of={letter} />
              <section aria-label="Row">
                <h2>Row</h2>
                <div className="panel">
                  {letter.row ? <RowText row={letter.row} /> : <p>Left out: your token has no scope rows.</p>}
                </div>
              </section>
            </div>
          )}
        </Loaded>
      )}
      {verb !== null && (
        <LetterAction
          verb={verb}
          topology={topology}
          target={{ ids: [id] }}
          done={setSaid}
          close={() => setVerb(null)}
        />
      )}
    </>
  );
}

function Facts({ topology, of }: { topology: string; of: DeadLetter }) {
  const rows: [string, ReactNode][] = [
    ["Kind", <Status key="" kind={of.status} />],
    ["Message id", <MessageId key="" of={of} whole />],
    ["Reason", <Reason key="" text={of.reason} whole />],
    ["Step", stepBatch(of) || "not known"],
    ["Given up", instant(of.at)],
    ["Attempts", count(of.attempts)],
    ["Spout", of.spout],
    ["Replayed to", of.stream],
    [
      "Last tree",
      <Link key="" className="mono" to={`/t/${topology}/trees/${of.anchor}`}>
        {of.anchor}
      </Link>,
    ],
  ];
  return (
    <section aria-label="Facts">
      <h2>Facts</h2>
      <Rows rows={rows} />
    </section>
  );
}

/** How its attempts ended, as far as they are kept, oldest first. */
function Attempts({ of }: { of: DeadLetter }) {
  return (
    <section aria-label="Attempts">
      <h2>Attempts</h2>
      <ol className="panel history">
        {of.history.map((one) => (
          <li key={one.number}>
            <b>
              Attempt {one.number}: <Status kind={one.status} />
            </b>
            <span>
              {instant(one.at)}
              {one.step !== "" && `, step ${stepBatch(one)}`}
            </span>
            <span>
              <Reason text={one.reason} whole />
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}
