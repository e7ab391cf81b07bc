/** What a view says when it has nothing to show, or not what it should. */

import { useState, type ReactNode } from "react";
import { Problem, Unreachable } from "../api/client";

export function Loading({ what }: { what: string }) {
  return (
    <p className="notice" role="status">
      Loading {what}…
    </p>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <div className="notice empty">{children}</div>;
}

/** What an error means to the reader, in a sentence. */
function explain(error: Error): string {
  if (error instanceof Unreachable) return "The service does not answer. It is tried again by itself.";
  if (error instanceof Problem && error.status === 503)
    return `The service runs, and its store is away: ${error.message.replace(/\.+$/, "")}. It is tried again by itself.`;
  return error.message;
}

export function Failure({ error }: { error: Error }) {
  return (
    <div className="notice failure" role="alert">
      <span aria-hidden="true">⚠</span> {explain(error)}
    </div>
  );
}

/**
 * What a query has, or why it has nothing. While it is asked again it has no error: what was wrong stays until
 * there is something to show. An error of a renewal is shown beside the age of the data (RefreshControl).
 */
export function Loaded({
  query,
  what,
  children,
}: {
  query: { data: unknown; error: Error | null; errorUpdatedAt: number };
  what: string;
  children: ReactNode;
}) {
  const [last, setLast] = useState(query.error);
  if (query.error !== null && query.error !== last) setLast(query.error);
  if (query.data !== undefined) return children;
  return last !== null && query.errorUpdatedAt > 0 ? <Failure error={last} /> : <Loading what={what} />;
}
