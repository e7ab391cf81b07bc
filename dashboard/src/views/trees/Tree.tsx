import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link, useParams } from "react-router";
import { Problem, type Schemas } from "../../api/client";
import { treeQuery } from "../../api/queries";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Rows } from "../../components/Rows";
import { MessageId, Reason } from "../../components/Text";
import { useIsOfLine } from "../lines/useIsOfLine";
import { useRefresh } from "../../hooks/refresh";
import { useTopology } from "../../hooks/topology";
import { duration, instant, stepBatch } from "../../lib/format";
import { requestPath, sectionOf, SECTIONS } from "../lines/lines";
import { findPath, messageIdText } from "../../lib/records";
import { TreeAction, type Action } from "./Action";
import { Search } from "../find/Search";
import { timeLeft } from "./Trees";
import { Where } from "../stuck/Where";

/** One tree: where it stands, or how it ended. */
export function Tree() {
  const { topology = "", anchor = "" } = useParams();
  const refresh = useRefresh();
  const config = useTopology(topology);
  const [action, setAction] = useState<Action | null>(null);
  const [said, setSaid] = useState("");
  const found = useQuery({
    ...treeQuery(topology, anchor),
    refetchInterval: refresh.interval,
  });
  const gone = found.error instanceof Problem && found.error.status === 404;
  const tree = found.data?.tree ?? null;
  const flies = !gone && tree !== null && tree.state !== "finished";
  return (
    <>
      <div className="title">
        <h1>
          Tree <span className="mono">{anchor}</span>
        </h1>
        <RefreshControl refresh={refresh} updatedAt={found.dataUpdatedAt} error={gone ? null : found.error} />
      </div>
      <div className="toolbar actions">
        <OperatorButton kind="danger" disabled={!flies} press={() => setAction("fail")}>
          Fail…
        </OperatorButton>
        <OperatorButton disabled={!flies} press={() => setAction("reset")}>
          Reset timeout…
        </OperatorButton>
        <ReadOnly />
        <span role="status">{said}</span>
      </div>
      {gone ? (
        <Empty>
          <p>The topology knows no such tree: it was never tracked, or it finished some time ago.</p>
          <p>
            <Link to={`/t/${topology}/outcomes`}>Failures and expirations</Link>
          </p>
          <p>By its message id it may be found all the same, in the box above.</p>
        </Empty>
      ) : (
        <Loaded query={found} what="the tree">
          {found.data && (
            <div className="columns">
              <Facts topology={topology} of={found.data} />
              <History of={found.data} />
            </div>
          )}
          {flies && <Where topology={topology} anchor={anchor} />}
          {found.data && found.data.message_id_base64 !== null && found.data.spout !== SECTIONS && (
            <Search
              // Another state is a reason to look again.
              key={found.data.outcome?.status ?? found.data.tree?.state}
              topology={topology}
              id={messageIdText(found.data)}
              tree={anchor}
            />
          )}
        </Loaded>
      )}
      {action !== null && tree !== null && (
        <TreeAction
          action={action}
          topology={topology}
          targets={[tree]}
          timeout={duration(config.data?.configuration.message_timeout)}
          done={setSaid}
          close={() => setAction(null)}
        />
      )}
    </>
  );
}

function Facts({ topology, of }: { topology: string; of: Schemas["TreeState"] }) {
  const { tree } = of;
  const ofLine = useIsOfLine(topology, of.anchor);
  const rows: [string, ReactNode][] = [
    ["State", <Status key="" kind={of.outcome?.status ?? tree?.state ?? "finished"} />],
  ];
  if (of.spout !== SECTIONS)
    rows.push(
      ["Message id", <MessageId key="" of={of} whole />],
      [
        "Message id, base64",
        <span key="" className="mono wrap">
          {of.message_id_base64 ?? duration(null)}
        </span>,
      ],
    );
  rows.push(["Spout", of.spout ?? "none yet"]);
  if (of.message_id_base64 !== null && of.spout !== SECTIONS)
    rows.push([
      "Record",
      <Link key="" to={findPath(topology, of)}>
        its attempts and dead letters
      </Link>,
    ]);
  if (ofLine)
    rows.push([
      "Line",
      <Link key="" to={requestPath(topology, of.anchor)}>
        its request, of which this is section {sectionOf(of.anchor)}
      </Link>,
    ]);
  if (tree !== null)
    rows.push(
      [
        "Ack value",
        <span key="" className="mono">
          {tree.ack_value}
          {tree.ack_value === "0" && !of.outcome ? " (complete)" : ""}
        </span>,
      ],
      ["Bucket", tree.bucket ?? duration(null)],
      ["Shard", tree.shard],
      ["Slab, index", <span key="" className="mono">{`${tree.slab}, ${tree.index}`}</span>],
    );
  return (
    <section aria-label="Facts">
      <h2>Facts</h2>
      <Rows rows={rows} />
    </section>
  );
}

function History({ of }: { of: Schemas["TreeState"] }) {
  const { tree, outcome } = of;
  return (
    <section aria-label="History">
      <h2>History</h2>
      <ol className="panel history">
        {tree !== null && (
          <li>
            <b>{tree.state === "waiting" ? "First message, before its track" : "Tracked"}</b>
            <span>
              {instant(tree.tracked_at)}
              {tree.state === "finished" ? "" : `, ${duration(tree.age)} ago`}
            </span>
          </li>
        )}
        {tree !== null && outcome === null && (
          <li>
            <b>
              {tree.state === "waiting" ? "Waits for its track" : `In flight, in bucket ${tree.bucket ?? ""}`}
            </b>
            <span>
              {tree.state === "waiting"
                ? "dropped by the ticks if that does not come"
                : tree.wait !== null
                  ? timeLeft(tree)
                  : `expires in ${timeLeft(tree)} unless it completes`}
              {tree.failure === null ? "" : "; it will fail: "}
              {tree.failure !== null && <Reason text={tree.failure} whole />}
            </span>
          </li>
        )}
        {outcome !== null && (
          <li>
            <b>
              <Status kind={outcome.status} />
            </b>
            <span>
              {instant(outcome.at)}
              {outcome.age === null ? "" : `, ${duration(outcome.age)} after its track`}
              {outcome.step === "" ? "" : `, by ${stepBatch(outcome)}`}
            </span>
            {outcome.reason !== "" && (
              <span>
                Reason: <Reason text={outcome.reason} whole />
              </span>
            )}
          </li>
        )}
      </ol>
    </section>
  );
}
