/** What an operator does to trees by hand: asked for, said before it happens, and reported after. */

import { useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";
import { client, data, Problem, type Schemas } from "../../api/client";
import { renewTrees } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { Progress } from "../../components/Progress";
import { count, plural } from "../../lib/format";
import { inPieces } from "../../lib/pieces";

export type Action = "fail" | "reset";

/** Most characters of a reason: the service takes 1,024 bytes of UTF-8, which are at most four a character. */
const REASON_LENGTH = 256;

const LATER = "Trees that were tracked after these were read are left out.";
/** Trees that one call names at most. */
const PIECE = 1000;

export interface Target {
  anchor: string;
  slab: string;
}

/** Asks whether trees are to be failed or reset, and does it. `done` gets what came of it in a sentence. */
export function TreeAction({
  action,
  topology,
  targets,
  all = false,
  timeout,
  done,
  close,
}: {
  action: Action;
  topology: string;
  targets: Target[];
  /** All trees of a filter: their number is typed before they are failed. */
  all?: boolean;
  timeout: string;
  done: (said: string) => void;
  close: () => void;
}) {
  const queries = useQueryClient();
  const [reason, setReason] = useState("failed by hand");
  const field = useId();
  const [soFar, setSoFar] = useState(0);
  const stopped = useRef(false);
  const path = { topology };
  const inAll = async (once: (anchors: string[]) => Promise<void>) => {
    stopped.current = false;
    const piece = async (first: number) => {
      const part = targets.slice(first, first + PIECE);
      await once(part.map((target) => target.anchor));
      return { done: part.length, next: first + PIECE < targets.length ? first + PIECE : null };
    };
    const ended = inPieces(0, piece, setSoFar, () => stopped.current);
    const { done: reached, stopped: early } = await ended.finally(() => void renewTrees(queries, topology));
    return early ? ` It was stopped after ${count(reached)} of ${count(targets.length)}.` : "";
  };
  const slabs = new Set(targets.map((target) => target.slab)).size;
  const trees = plural(targets.length, "tree");
  const stop = () => (stopped.current = true);
  const fail = async () => {
    const sum = { failed: 0, late: 0, waiting: 0, unknown: 0 };
    const end = await inAll(async (anchors) => {
      const result = await failed(
        data(
          client.POST("/api/v1/topologies/{topology}/fail", { params: { path }, body: { anchors, reason } }),
        ),
        all ? anchors : [],
      );
      sum.failed += result.failed;
      sum.late += result.late;
      sum.waiting += result.waiting;
      sum.unknown += result.unknown.length;
    });
    const said = [`${plural(sum.failed, "tree")} failed`];
    if (sum.late) said.push(`${count(sum.late)} had finished before`);
    if (sum.waiting) said.push(`${count(sum.waiting)} will fail when tracked`);
    if (sum.unknown) said.push(`${count(sum.unknown)} no longer known`);
    done(`${said.join(", ")}.${end}`);
  };
  const reset = async () => {
    let sum = 0;
    const end = await inAll(async (anchors) => {
      const result = await data(
        client.POST("/api/v1/topologies/{topology}/reset-timeout", { params: { path }, body: { anchors } }),
      );
      sum += result.slabs;
    });
    done(`${plural(sum, "slab")} went back to the nursery, with all their trees.${end}`);
  };
  if (action === "fail")
    return (
      <Confirm
        title={`Fail ${trees}?`}
        action={`Fail ${trees}`}
        danger
        {...(all ? { typed: String(targets.length) } : {})}
        stop={stop}
        run={fail}
        close={close}
      >
        <p>
          {targets.length === 1 ? "The tree fails" : "The trees fail"} at once and for good. The spout learns
          the reason, and tries the record again or gives it up as a dead letter. Work still under way for{" "}
          {targets.length === 1 ? "it" : "them"} is counted as late and changes nothing. A tree that has
          finished by then stays as it is.
        </p>
        <label htmlFor={field}>Reason</label>
        <input
          id={field}
          maxLength={REASON_LENGTH}
          value={reason}
          onChange={(event) => setReason(event.target.value)}
        />
        {all && <Progress done={soFar} of={targets.length} before={LATER} />}
      </Confirm>
    );
  return (
    <Confirm
      title={`Reset the timeout of ${trees}?`}
      action="Reset timeout"
      stop={stop}
      run={reset}
      close={close}
    >
      <p>
        {targets.length === 1 ? "The tree gets" : "The trees get"} the whole message timeout of {timeout}{" "}
        again, from now. Trees that were tracked by the same call lie in the same slab and are reset with{" "}
        {targets.length === 1 ? "it" : "them"}: {plural(slabs, "slab")} here.
      </p>
      {all && <Progress done={soFar} of={targets.length} before={LATER} />}
    </Confirm>
  );
}

/** The result of a fail; of a piece of many, whose trees may all have ended by then, that they are unknown. */
async function failed(call: Promise<Schemas["FailResult"]>, piece: string[]): Promise<Schemas["FailResult"]> {
  try {
    return await call;
  } catch (error) {
    if (piece.length === 0 || !(error instanceof Problem) || error.kind !== "unknown-tree") throw error;
    return { failed: 0, late: 0, waiting: 0, unknown: piece };
  }
}
