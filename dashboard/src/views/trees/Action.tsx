/** What an operator does to trees by hand: asked for, said before it happens, and reported after. */

import { useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { client, data } from "../../api/client";
import { renewTrees } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { plural } from "../../lib/format";

export type Action = "fail" | "reset";

/** Most characters of a reason: the service takes 1,024 bytes of UTF-8, which are at most four a character. */
const REASON_LENGTH = 256;

export interface Target {
  anchor: string;
  slab: string;
}

/** Asks whether trees are to be failed or reset, and does it. `done` gets what came of it in a sentence. */
export function TreeAction({
  action,
  topology,
  targets,
  timeout,
  done,
  close,
}: {
  action: Action;
  topology: string;
  targets: Target[];
  timeout: string;
  done: (said: string) => void;
  close: () => void;
}) {
  const queries = useQueryClient();
  const [reason, setReason] = useState("failed by hand");
  const field = useId();
  const path = { topology };
  const anchors = targets.map((target) => target.anchor);
  const slabs = new Set(targets.map((target) => target.slab)).size;
  const trees = plural(targets.length, "tree");
  const fail = async () => {
    const result = await data(
      client.POST("/api/v1/topologies/{topology}/fail", { params: { path }, body: { anchors, reason } }),
    );
    const said = [`${plural(result.failed, "tree")} failed`];
    if (result.late) said.push(`${result.late} had finished before`);
    if (result.waiting) said.push(`${result.waiting} will fail when tracked`);
    if (result.unknown.length) said.push(`${result.unknown.length} no longer known`);
    done(`${said.join(", ")}.`);
    void renewTrees(queries, topology);
  };
  const reset = async () => {
    const result = await data(
      client.POST("/api/v1/topologies/{topology}/reset-timeout", { params: { path }, body: { anchors } }),
    );
    done(`${plural(result.slabs, "slab")} went back to the nursery, with all their trees.`);
    void renewTrees(queries, topology);
  };
  if (action === "fail")
    return (
      <Confirm title={`Fail ${trees}?`} action={`Fail ${trees}`} danger run={fail} close={close}>
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
      </Confirm>
    );
  return (
    <Confirm title={`Reset the timeout of ${trees}?`} action="Reset timeout" run={reset} close={close}>
      <p>
        {targets.length === 1 ? "The tree gets" : "The trees get"} the whole message timeout of {timeout}{" "}
        again, from now. Trees that were tracked by the same call lie in the same slab and are reset with{" "}
        {targets.length === 1 ? "it" : "them"}: {plural(slabs, "slab")} here.
      </p>
    </Confirm>
  );
}
