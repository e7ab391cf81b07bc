import { useQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { Link, useNavigate, useParams } from "react-router";
import { Problem, type Schemas } from "../../api/client";
import { callsQuery, functionQuery } from "../../api/functions";
import { CallFigures } from "./CallFigures";
import { Causes } from "./Causes";
import { DataTable } from "../../components/table/DataTable";
import { FunctionBadge, FunctionTroubles } from "./FunctionHealth";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { RefreshControl } from "../../components/page/RefreshControl";
import { Reason } from "../../components/Text";
import { TimeChoice } from "./TimeChoice";
import { TIME_NAMES, useTime } from "./time";
import { useRefresh, type Refresh } from "../../hooks/refresh";
import { oneOf, useUrl } from "../../hooks/url";
import { compact, count, duration, instant, NOTHING, percent, plural } from "../../lib/format";
import { answerRate, CALL_KINDS, callPath, failing } from "./functions";

type Step = Schemas["FunctionStep"];
type Call = Schemas["CallHead"];

const STATES = ["pending", "ended"] as const;
const STATE_NAMES = { pending: "Without answer", ended: "Answered last" } as const;
const DEFAULTS = { state: "pending" };
const MOST_CALLS = 50;

/** A function: what became of its calls, who works on its steps, and its calls. */
export function FunctionView() {
  const { function: name = "" } = useParams();
  const refresh = useRefresh();
  const [time, choose] = useTime();
  const found = useQuery({ ...functionQuery(name), refetchInterval: refresh.interval });
  const gone = found.error instanceof Problem && found.error.status === 404;
  const of = found.data;
  return (
    <>
      <div className="title">
        <h1>{name}</h1>
        {of && <FunctionBadge of={of} known={found.error === null} />}
        <RefreshControl refresh={refresh} updatedAt={found.dataUpdatedAt} error={gone ? null : found.error} />
      </div>
      {gone ? (
        <Empty>
          <p>The store has no function of this name.</p>
          <p>
            <Link to="/functions">All functions</Link>
          </p>
        </Empty>
      ) : (
        <Loaded query={found} what="the function">
          {of && (
            <>
              {found.error === null && <FunctionTroubles of={of} />}
              <div className="toolbar">
                <TimeChoice time={time} choose={choose} />
              </div>
              <div className="panel summary">
                <CallFigures of={of[time]} label={`Calls, ${TIME_NAMES[time]}`} />
                <Facts of={of} time={time} />
              </div>
              <section>
                <h2>Steps</h2>
                <DataTable caption="Steps" rows={of.steps} columns={STEPS} id={(step) => step.name} />
              </section>
              <section aria-labelledby="causes">
                <h2 id="causes">Without a result, by cause</h2>
                <Causes of={of[time]} />
              </section>
              <Calls name={name} refresh={refresh} />
            </>
          )}
        </Loaded>
      )}
    </>
  );
}

function Facts({ of, time }: { of: Schemas["Function"]; time: keyof typeof TIME_NAMES }) {
  const share = failing(of[time]);
  const facts = [
    ["Rate, 10 minutes", answerRate(of.recent.rate).join(" ")],
    ["Without a result", share === null ? NOTHING : percent(share)],
    ["Without answer, of at most", `${count(of.pending)} of ${compact(of.max_pending)}`],
    ["Time of a call", duration(of.timeout)],
    [
      "Idempotent",
      of.idempotent
        ? `yes: up to ${plural(of.attempts, "attempt")}`
        : "no: what a dead worker had begun fails",
    ],
  ] as const;
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      <div>
        <dt>Topology</dt>
        <dd>
          <Link to={`/t/${of.topology}`}>{of.topology}</Link>,{" "}
          <Link to={`/t/${of.topology}/lines`}>its lines</Link>
        </dd>
      </div>
    </dl>
  );
}

/** Its calls: those without answer, or the last that were answered; and a field for the id of any other. */
function Calls({ name, refresh }: { name: string; refresh: Refresh }) {
  const navigate = useNavigate();
  const [url, change] = useUrl(DEFAULTS);
  const state = oneOf(url.state, STATES);
  const found = useQuery({
    ...callsQuery(name, state, MOST_CALLS),
    refetchInterval: refresh.interval,
  });
  const calls = found.data?.calls ?? [];
  return (
    <section aria-labelledby="calls">
      <h2 id="calls">Calls</h2>
      <div className="toolbar">
        <div className="segments two" role="group" aria-label="Which calls">
          {STATES.map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={one === state}
              onClick={() => change({ state: one })}
            >
              {STATE_NAMES[one]}
            </button>
          ))}
        </div>
        <form
          className="find"
          onSubmit={(event) => {
            event.preventDefault();
            const text = new FormData(event.currentTarget).get("request");
            if (typeof text === "string" && text.trim() !== "")
              void navigate(callPath(name, encodeURIComponent(text.trim())));
          }}
        >
          <label>
            <span className="hidden">Request</span>
            <input
              name="request"
              type="search"
              placeholder="Id of a request"
              spellCheck={false}
              autoComplete="off"
            />
          </label>
          <button type="submit">Look</button>
        </form>
      </div>
      <Loaded query={found} what="the calls">
        {calls.length === 0 ? (
          <p className="faint">
            {state === "pending"
              ? "None: every call has its answer."
              : "None whose answer is still kept, which is for ten minutes."}
          </p>
        ) : (
          <>
            <DataTable
              caption={STATE_NAMES[state]}
              rows={calls}
              columns={state === "pending" ? pendingColumns(name) : endedColumns(name)}
              id={(one) => one.request}
            />
            {calls.length === MOST_CALLS && (
              <p className="faint">
                {state === "pending"
                  ? "The fifty whose time is over first."
                  : "The fifty that were answered last."}
              </p>
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

const STEPS: ColumnDef<Step>[] = [
  { header: "Step", cell: ({ row }) => row.original.name },
  { header: "Reads", cell: ({ row }) => <span className="wrap">{row.original.stream}</span> },
  {
    header: "Sees",
    cell: ({ row: { original } }) => (original.gathers ? "a request when all of it is there" : "each row"),
  },
  { header: "Tasks", cell: ({ row }) => count(row.original.tasks), meta: { number: true } },
  {
    header: "Workers alive",
    cell: ({ row: { original } }) =>
      original.workers === null ? (
        "a Spark job"
      ) : original.workers === 0 ? (
        <span className="health ill">
          <span aria-hidden="true">▲</span> none
        </span>
      ) : (
        count(original.workers)
      ),
    meta: { number: true },
  },
];

function request(name: string): ColumnDef<Call> {
  return {
    header: "Request",
    cell: ({ row: { original } }) => (
      <Link className="mono wrap" to={callPath(name, original.request)}>
        {original.request}
      </Link>
    ),
  };
}

function pendingColumns(name: string): ColumnDef<Call>[] {
  return [
    request(name),
    { header: "Called", cell: ({ row }) => instant(row.original.at) },
    { header: "Answered until", cell: ({ row }) => instant(row.original.deadline) },
  ];
}

function endedColumns(name: string): ColumnDef<Call>[] {
  return [
    request(name),
    {
      header: "How",
      cell: ({ row: { original } }) => <Status kind={CALL_KINDS[original.status]} word={original.status} />,
    },
    { header: "Took", cell: ({ row }) => duration(row.original.took), meta: { number: true } },
    { header: "Answered", cell: ({ row }) => instant(row.original.at) },
    { header: "Where", cell: ({ row }) => row.original.steps.join(", ") || NOTHING },
    {
      header: "Why",
      cell: ({ row: { original } }) =>
        original.status === "answered" ? NOTHING : <Reason text={original.reason} />,
      meta: { width: "w-wide" },
    },
  ];
}
