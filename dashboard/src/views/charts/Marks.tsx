/** The marks on the charts in words, and the button that sets one. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useMemo, useState } from "react";
import { Link } from "react-router";
import { client, data } from "../../api/client";
import { activityOfQuery } from "../../api/history";
import { renewMarks } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { OperatorButton } from "../../components/Operator";
import { instant, plural } from "../../lib/format";
import { chartMarks, type ChartMark } from "./marks";
import type { Range } from "./range";

/** Seconds after which it is looked again. */
const SECONDS = 10;
/** Most marks of the list: the latest. */
const LISTED = 20;
/** Most characters of a mark: the service takes no more. */
const LONGEST = 200;

/** The marks of a topology over a range of time. */
export function useMarks(topology: string, range: Range, paused: boolean): readonly ChartMark[] {
  const found = useQuery({
    ...activityOfQuery(topology, range),
    refetchInterval: paused || range.until !== null ? false : SECONDS * 1000,
  });
  return useMemo(() => chartMarks(found.data ?? []), [found.data]);
}

export function Marks({ of, topology }: { of: readonly ChartMark[]; topology: string }) {
  const [asked, setAsked] = useState(false);
  return (
    <section className="marks" aria-label="Marks">
      <div className="toolbar">
        <details className={of.length === 0 ? "faint" : undefined}>
          <summary>{plural(of.length, "mark")} in these charts</summary>
          <ol>
            {of
              .slice(-LISTED)
              .reverse()
              .map((mark) => (
                <li key={mark.id} className={`mark-${mark.kind}`}>
                  <time dateTime={new Date(mark.at * 1000).toISOString()}>
                    {instant(new Date(mark.at * 1000).toISOString())}
                  </time>{" "}
                  <bdi className="wrap">{mark.text}</bdi>
                </li>
              ))}
          </ol>
          <Link to={`/t/${topology}/activity`}>All that is kept</Link>
        </details>
        <OperatorButton disabled={false} press={() => setAsked(true)}>
          Set a mark…
        </OperatorButton>
      </div>
      {asked && <Ask topology={topology} close={() => setAsked(false)} />}
    </section>
  );
}

function Ask({ topology, close }: { topology: string; close: () => void }) {
  const queries = useQueryClient();
  // The key is the same until the text is another: a press after a lost answer sets no second mark.
  const [{ text, key }, setAsked] = useState(() => ({ text: "", key: newKey() }));
  const field = useId();
  const run = async () => {
    const path = { topology };
    const header = { "Idempotency-Key": key };
    try {
      await data(
        client.POST("/api/v1/topologies/{topology}/marks", { params: { path, header }, body: { text } }),
      );
    } finally {
      void renewMarks(queries, topology);
    }
  };
  return (
    <Confirm title="Set a mark on the charts" action="Set mark" run={run} close={close}>
      <p>It stands at the present time, on each chart of the topology and in its activity.</p>
      <label htmlFor={field}>Text</label>
      <input
        id={field}
        value={text}
        required
        maxLength={LONGEST}
        placeholder="deploy 1.4.2"
        onChange={(event) => setAsked({ text: event.target.value, key: newKey() })}
      />
    </Confirm>
  );
}

function newKey(): string {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}
