import { useState } from "react";
import { useParams } from "react-router";
import { Choice, FailureFields } from "../../components/Fields";
import { Troubles } from "../../components/Health";
import { useTopology } from "../../hooks/topology";
import { oneOf, useUrl } from "../../hooks/url";
import { LetterAction, type LetterVerb, type Target } from "./Action";
import { LetterGroups } from "./Groups";
import { LetterRows } from "./Rows";
import { AGES, FILTER, matching } from "./filter";

const DEFAULTS = { ...FILTER, view: "groups", cursor: "" };
const VIEWS = ["groups", "rows"] as const;
const VIEW_NAMES = { groups: "By cause", rows: "Rows" };

/** Rows that were given up: by cause first, then one by one; to be tried again, or discarded. */
export function DeadLetters() {
  const { topology = "" } = useParams();
  const [url, change] = useUrl(DEFAULTS);
  const config = useTopology(topology);
  const [asking, setAsking] = useState<{ verb: LetterVerb; target: Target } | null>(null);
  const [said, setSaid] = useState("");
  // What was selected is over with what was done to it.
  const [done, setDone] = useState(0);
  const { view: named, cursor, ...filter } = url;
  const view = oneOf(named, VIEWS);
  const filtered = Object.values(filter).some((value) => value !== "");
  const apply = (patch: Partial<typeof DEFAULTS>) => {
    setSaid("");
    change({ ...patch, cursor: "" });
  };
  const full = config.data?.health.troubles.filter((one) => one.code === "dead-letters-full") ?? [];
  const shown = {
    topology,
    asked: matching(filter),
    filtered,
    waits: asking !== null,
    ask: (verb: LetterVerb, target: Target) => setAsking({ verb, target }),
    said,
    filter: (
      <>
        <search className="filter">
          <div className="segments" role="group" aria-label="View">
            {VIEWS.map((one) => (
              <button
                key={one}
                type="button"
                aria-pressed={one === view}
                onClick={() => apply({ view: one })}
              >
                {VIEW_NAMES[one]}
              </button>
            ))}
          </div>
          <FailureFields
            filter={{ ...filter, step: filter.step.replace(/^=/, "") }}
            spouts={config.data?.spouts ?? []}
            change={apply}
          />
          <Choice label="Given up" value={filter.age} options={AGES} change={(age) => apply({ age })} />
          {filtered && (
            <button type="button" onClick={() => apply(FILTER)}>
              Clear
            </button>
          )}
        </search>
        {filter.cause !== "" && (
          <p className="chosen">
            Only of the cause <bdi className="wrap">{filter.cause.replace(/^=/, "") || "(none given)"}</bdi>{" "}
            <button type="button" onClick={() => apply({ cause: "" })}>
              All causes
            </button>
          </p>
        )}
        {full.length > 0 && <Troubles health={{ troubles: full, muted: [] }} />}
      </>
    ),
  };
  return (
    <>
      {view === "groups" ? (
        <LetterGroups {...shown} show={(patch) => apply({ ...patch, view: "rows" })} />
      ) : (
        <LetterRows {...shown} key={done} cursor={cursor} go={(next) => change({ cursor: next })} />
      )}
      {asking !== null && (
        <LetterAction
          {...asking}
          topology={topology}
          done={(text) => {
            setSaid(text);
            setDone((times) => times + 1);
          }}
          close={() => setAsking(null)}
        />
      )}
    </>
  );
}
