import type { Schemas } from "../../api/client";
import { capital } from "../../lib/format";
import { troubles } from "./functions";

/** Whether a function needs a human, in a word and a shape. known: whether that is so now. */
export function FunctionBadge({ of, known }: { of: Schemas["Function"]; known: boolean }) {
  const kind = !known ? "faint" : troubles(of).length > 0 ? "ill" : "well";
  return (
    <span className={`health ${kind}`}>
      <span aria-hidden="true">{kind === "faint" ? "○" : kind === "ill" ? "▲" : "●"}</span>{" "}
      {kind === "faint" ? "unknown" : kind === "ill" ? "needs a look" : "at work"}
    </span>
  );
}

/** What needs a human: in words, and unless it is to be brief, what to do. */
export function FunctionTroubles({ of, brief = false }: { of: Schemas["Function"]; brief?: boolean }) {
  const found = troubles(of);
  if (found.length === 0) return null;
  return (
    <ul className="troubles" aria-label="What needs a look">
      {found.map((one) => (
        <li key={one}>
          <span aria-hidden="true">▲</span>{" "}
          <span>
            {capital(one)}.{" "}
            {!brief && one.startsWith("no worker") && (
              <span className="advice">
                Start one: <code>acker drpc work MODULE:NAME --topology {of.topology}</code>. Calls wait until
                then, or until their time is over.
              </span>
            )}
          </span>
        </li>
      ))}
    </ul>
  );
}
