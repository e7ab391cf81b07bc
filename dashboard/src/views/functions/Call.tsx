import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link, useParams } from "react-router";
import { client, data, Problem, type Schemas } from "../../api/client";
import { callQuery, functionQuery, resultQuery } from "../../api/functions";
import { renewCalls, whyQuery } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Rows } from "../../components/Rows";
import { Reason } from "../../components/Text";
import { useRefresh } from "../../hooks/refresh";
import { duration, instant, NOTHING, plural } from "../../lib/format";
import { apart, CALL_KINDS, isNow, STEP_KINDS, stepWord } from "./functions";
import { requestPath, waiting, within } from "../lines/lines";
import { Where } from "../stuck/Where";

type Progress = Schemas["CallProgress"];

/** A call of a function: how far each step is with it, or how it ended, where and why. */
export function Call() {
  const { function: name = "", request = "" } = useParams();
  const refresh = useRefresh();
  const of = useQuery({ ...functionQuery(name), refetchInterval: refresh.interval });
  const [asks, setAsks] = useState(false);
  const [said, setSaid] = useState("");
  const found = useQuery({
    ...callQuery(name, request),
    refetchInterval: refresh.interval,
  });
  const unknown = found.error instanceof Problem && found.error.status < 500 ? found.error : null;
  const progress = unknown === null ? found.data : undefined;
  const pending = progress?.call.status === "pending";
  const topology = of.data?.topology;
  const now = progress?.steps.find(isNow);
  const anchor = progress?.anchor != null && now ? within(progress.anchor, now.section) : null;
  const where = useInfiniteQuery({
    ...whyQuery(topology ?? "", anchor ?? ""),
    enabled: topology !== undefined && anchor !== null,
  });
  const streams = new Map(of.data?.steps.map((step) => [step.name, step.stream]));
  const steps = apart(progress?.steps ?? [], streams, allOf(where.data?.pages));
  return (
    <>
      <div className="title">
        <h1>
          Call of {name} <span className="mono">{request}</span>
        </h1>
        <RefreshControl
          refresh={refresh}
          updatedAt={found.dataUpdatedAt}
          error={unknown === null ? found.error : null}
        />
      </div>
      <div className="toolbar actions">
        <OperatorButton kind="danger" disabled={!pending} press={() => setAsks(true)}>
          Cancel…
        </OperatorButton>
        <ReadOnly />
        <span role="status">{said}</span>
      </div>
      {unknown !== null ? (
        <Empty>
          <p>
            {unknown.kind === "unknown-request"
              ? "The function knows no such call: there was none, or its answer was kept for long enough."
              : unknown.kind === "invalid-request"
                ? "This is the id of no call: it has 32 hexadecimal digits."
                : unknown.kind === "unknown-function"
                  ? "The store has no function of this name."
                  : unknown.message}
          </p>
          <p>
            {unknown.kind === "unknown-function" ? (
              <Link to="/functions">All functions</Link>
            ) : (
              <Link to={`/functions/${name}`}>The function, and its calls</Link>
            )}
          </p>
        </Empty>
      ) : (
        <Loaded query={found} what="the call">
          {progress && (
            <div className="columns">
              <Facts name={name} topology={topology} of={progress} />
              <Steps steps={steps} status={progress.call.status} />
            </div>
          )}
          {progress?.call.status === "answered" && <Result name={name} request={request} />}
          {topology !== undefined && now !== undefined && anchor !== null && (
            <>
              <h2>Section {now.section}, under way</h2>
              <Where key={anchor} topology={topology} anchor={anchor} />
            </>
          )}
        </Loaded>
      )}
      {asks && <Cancel name={name} request={request} done={setSaid} close={() => setAsks(false)} />}
    </>
  );
}

function Facts({ name, topology, of }: { name: string; topology: string | undefined; of: Progress }) {
  const { call } = of;
  const pending = call.status === "pending";
  const rows: [string, ReactNode][] = [
    ["State", <Status key="" kind={CALL_KINDS[call.status]} word={call.status} />],
    [
      "Function",
      <Link key="" to={`/functions/${name}`}>
        {name}
      </Link>,
    ],
    [pending ? "Called" : "Answered", instant(call.at)],
  ];
  if (pending) rows.push(["Answered until", instant(call.deadline)]);
  else rows.push(["Took", duration(call.took)]);
  if (!pending && call.status !== "answered") {
    rows.push(["Where", call.steps.join(", ") || <span className="faint">no step: it is not known</span>]);
    rows.push(["Why", <Reason key="" text={call.reason} whole />]);
  }
  if (of.anchor !== null && topology !== undefined)
    rows.push([
      "Line",
      <Link key="" to={requestPath(topology, of.anchor)}>
        its request in the line
      </Link>,
    ]);
  return (
    <section aria-label="Facts">
      <h2>Facts</h2>
      <Rows rows={rows} />
    </section>
  );
}

/** What all pages of an answer say together. */
function allOf(pages: Schemas["Why"][] | undefined): Schemas["Why"] | undefined {
  const last = pages?.at(-1);
  return last && { ...last, places: (pages ?? []).flatMap((page) => page.places) };
}

function Steps({
  steps,
  status,
}: {
  steps: ReturnType<typeof apart>;
  status: Schemas["CallHead"]["status"];
}) {
  return (
    <section aria-labelledby="steps">
      <h2 id="steps">Steps</h2>
      <ol className="panel history steps">
        {steps.map((step) => {
          const there = waiting(step.gathered);
          return (
            <li key={step.name} data-state={step.state}>
              <b>{step.name}</b>
              <Status kind={STEP_KINDS[step.state]} word={stepWord(step.state, status)} />
              {step.since !== null && isNow(step) && <span>since {instant(step.since)}</span>}
              {step.rows !== null && step.rows > 0 && (
                <span>{plural(step.rows, "row")} to do, when that was looked at</span>
              )}
              {there.rows > 0 && (
                <span>
                  {plural(there.rows, "row")} {there.rows === 1 ? "waits" : "wait"} for it so far, for{" "}
                  {step.gathered.length === 1 ? "task" : "tasks"} {there.tasks}
                  {there.age === null ? "" : `, the first for ${duration(there.age)}`}.
                </span>
              )}
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** The result, which may have a mebibyte: it is asked for by hand. */
function Result({ name, request }: { name: string; request: string }) {
  const [wanted, setWanted] = useState(false);
  const found = useQuery({
    ...resultQuery(name, request),
    enabled: wanted,
  });
  const answer = found.data;
  return (
    <section aria-labelledby="result">
      <h2 id="result">Result</h2>
      {!wanted ? (
        <div className="toolbar actions">
          <button type="button" onClick={() => setWanted(true)}>
            Show it
          </button>
        </div>
      ) : (
        <Loaded query={found} what="the result">
          <div className="panel">
            <pre>{answer !== undefined && "result" in answer ? shortened(answer.result) : NOTHING}</pre>
          </div>
        </Loaded>
      )}
    </section>
  );
}

const MOST_CHARACTERS = 20_000;

/** A result as JSON, its beginning where it is long. */
function shortened(result: unknown): string {
  const text = JSON.stringify(result, null, 2);
  if (text.length <= MOST_CHARACTERS) return text;
  return `${text.slice(0, MOST_CHARACTERS)}\n… and ${plural(text.length - MOST_CHARACTERS, "character")} more`;
}

/** Asks whether a call is to be cancelled, and does it. */
function Cancel({
  name,
  request,
  done,
  close,
}: {
  name: string;
  request: string;
  done: (said: string) => void;
  close: () => void;
}) {
  const queries = useQueryClient();
  const cancel = async () => {
    const found = await data(
      client.DELETE("/api/v1/drpc/{function}/{request_id}", {
        params: { path: { function: name, request_id: request } },
      }),
    );
    done(found.cancelled ? "The call was cancelled." : "It had its answer already.");
    void renewCalls(queries, name);
  };
  return (
    <Confirm title="Cancel this call?" action="Cancel the call" danger run={cancel} close={close}>
      <p>
        It fails at once and for good: its caller learns that it was cancelled. Steps drop its rows; their
        effects on other systems stay.
      </p>
    </Confirm>
  );
}
