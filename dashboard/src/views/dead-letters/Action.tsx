/** Replaying and discarding dead letters: by name, or all of a filter, step by step. */

import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { client, data } from "../../api/client";
import { renewDeadLetters } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { count, plural } from "../../lib/format";
import type { Matching } from "./filter";

export type LetterVerb = "replay" | "discard";

/** Dead letters: by their ids, or by a filter and a time up to which they were counted. */
export type Target = { ids: string[] } | { matching: Matching; until: string; count: number };

/** Asks the user whether that is meant. */
export type Ask = (verb: LetterVerb, target: Target) => void;

interface Done {
  done: number;
  unknown: number;
  refused: number;
  why: string;
  waits: string | null;
  cursor: string | null;
}

/** Asks whether dead letters are to be replayed or discarded, and does it. `done` gets what came of it. */
export function LetterAction({
  verb,
  topology,
  target,
  done,
  close,
}: {
  verb: LetterVerb;
  topology: string;
  target: Target;
  done: (said: string) => void;
  close: () => void;
}) {
  const queries = useQueryClient();
  const [soFar, setSoFar] = useState(0);
  const stopped = useRef(false);
  const number = "ids" in target ? target.ids.length : target.count;
  const letters = plural(number, "dead letter");
  const run = async () => {
    stopped.current = false;
    const left = () => stopped.current;
    let total = 0;
    let refused = 0;
    let unknown = 0;
    let why = "";
    let step: Done = { done: 0, unknown: 0, refused: 0, why: "", waits: null, cursor: null };
    try {
      do {
        step = await once(verb, topology, target, step.cursor);
        total += step.done;
        refused += step.refused;
        unknown += step.unknown;
        why ||= step.why;
        setSoFar(total);
      } while (step.cursor !== null && step.waits === null && !left());
    } finally {
      void renewDeadLetters(queries, topology);
    }
    const report = [
      verb === "replay" ? `${plural(total, "row")} will be tried again` : `${plural(total, "row")} discarded`,
    ];
    if (unknown) report.push(`${count(unknown)} were dead letters no more`);
    if (refused) report.push(`${count(refused)} cannot be replayed: ${why}`);
    if (step.waits !== null) throw new Error(`${report.join(", ")}, and no more now: ${step.waits}.`);
    done(`${report.join(", ")}.`);
  };
  const one = number === 1;
  return (
    <Confirm
      title={`${verb === "replay" ? "Replay" : "Discard"} ${letters}?`}
      action={verb === "replay" ? "Replay" : `Discard ${letters}`}
      danger={verb === "discard"}
      run={run}
      close={() => {
        stopped.current = true;
        close();
      }}
    >
      {verb === "replay" ? (
        <p>
          {one ? "The row is" : "The rows are"} handed to the spout again, as{" "}
          {one ? "a new tree" : "new trees"} with all attempts before {one ? "it" : "them"}. Steps that took
          effect before take effect again unless they are idempotent. What fails again comes back here.
        </p>
      ) : (
        <p>
          {one ? "The row is" : "The rows are"} gone for good: nothing brings {one ? "it" : "them"} back.
          Export {one ? "it" : "them"} first if {one ? "it" : "they"} may be needed.
        </p>
      )}
      {!("ids" in target) && (
        <p className="faint" role="status">
          {soFar > 0
            ? `${count(soFar)} of ${count(number)} done so far.`
            : "What was given up after this was shown is left out."}
        </p>
      )}
    </Confirm>
  );
}

async function once(
  verb: LetterVerb,
  topology: string,
  target: Target,
  cursor: string | null,
): Promise<Done> {
  const body =
    "ids" in target
      ? { ids: target.ids }
      : { matching: target.matching, ...(cursor === null ? { until: target.until } : { cursor }) };
  const params = { path: { topology } };
  if (verb === "discard") {
    const found = await data(
      client.POST("/api/v1/topologies/{topology}/dead-letters/discard", { params, body }),
    );
    return {
      done: found.discarded,
      unknown: found.unknown.length,
      refused: 0,
      why: "",
      waits: null,
      cursor: found.cursor,
    };
  }
  const found = await data(
    client.POST("/api/v1/topologies/{topology}/dead-letters/replay", { params, body }),
  );
  return {
    done: found.replayed.length,
    unknown: found.unknown.length,
    refused: found.refused.length,
    why: found.refused[0]?.why ?? "",
    waits: found.rejected.length > 0 ? `for ${count(found.rejected.length)} there is no room` : found.waits,
    cursor: found.cursor,
  };
}
