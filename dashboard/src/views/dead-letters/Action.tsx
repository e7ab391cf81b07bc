/** Replaying and discarding dead letters: by name, or all of a filter, step by step. */

import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { client, data } from "../../api/client";
import { renewDeadLetters } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { Progress } from "../../components/Progress";
import { count, plural } from "../../lib/format";
import { inPieces } from "../../lib/pieces";
import type { Matching } from "./filter";

export type LetterVerb = "replay" | "discard";

/** Dead letters: by their ids, or by a filter and a time up to which they were counted. */
export type Target = { ids: string[] } | Every;

/** All dead letters of a filter, as they were counted. */
export interface Every {
  matching: Matching;
  until: string;
  count: number;
}

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
    let refused = 0;
    let unknown = 0;
    let why = "";
    let waits = "";
    const piece = async (cursor: string) => {
      const step = await once(verb, topology, target, cursor === "" ? null : cursor);
      refused += step.refused;
      unknown += step.unknown;
      why ||= step.why;
      waits = step.waits ?? "";
      return { done: step.done, next: step.waits === null ? step.cursor : null };
    };
    const ended = inPieces("", piece, setSoFar, () => stopped.current);
    const { done: total, stopped: early } = await ended.finally(
      () => void renewDeadLetters(queries, topology),
    );
    const report = [
      verb === "replay" ? `${plural(total, "row")} will be tried again` : `${plural(total, "row")} discarded`,
    ];
    if (early) report.push("and then it was stopped");
    if (unknown) report.push(`${count(unknown)} were dead letters no more`);
    if (refused) report.push(`${count(refused)} cannot be replayed: ${why}`);
    if (waits !== "") throw new Error(`${report.join(", ")}, and no more now: ${waits}.`);
    done(`${report.join(", ")}.`);
  };
  const one = number === 1;
  return (
    <Confirm
      title={`${verb === "replay" ? "Replay" : "Discard"} ${letters}?`}
      action={verb === "replay" ? "Replay" : `Discard ${letters}`}
      danger={verb === "discard"}
      {...(verb === "discard" && !("ids" in target) ? { typed: String(target.count) } : {})}
      stop={() => (stopped.current = true)}
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
        <Progress done={soFar} of={number} before="What was given up after this was counted is left out." />
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
