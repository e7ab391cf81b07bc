/** A shape beside each colour: nobody has to tell things apart by colour alone. */

export type Kind =
  "tracked" | "acked" | "failed" | "expired" | "rejected" | "pending" | "waiting" | "finished";

const SHAPES: Record<Kind, string> = {
  tracked: "M2 8h12",
  acked: "M2.5 8.5l4 4 7-9",
  failed: "M3 3l10 10M13 3L3 13",
  expired: "M3 2h10L3 14h10z",
  rejected: "M8 2a6 6 0 1 0 .01 0M4 4l8 8",
  pending: "M8 2a6 6 0 1 0 .01 0M8 5v3l2.5 2",
  waiting: "M3 8h.01M8 8h.01M13 8h.01",
  finished: "M2.5 8.5l4 4 7-9",
};

export function Mark({ kind }: { kind: Kind }) {
  return (
    <svg className={`mark ${kind}`} viewBox="0 0 16 16" aria-hidden="true">
      <path d={SHAPES[kind]} />
    </svg>
  );
}

/** A shape and its word, by default the word of the kind. */
export function Status({ kind, word = kind }: { kind: Kind; word?: string }) {
  return (
    <span className={`status ${kind}`}>
      <Mark kind={kind} />
      {word}
    </span>
  );
}
