/** The begin of a topology's page: its worst trouble, since when, what to do, and who has acted last. */

import { Link } from "react-router";
import type { Schemas } from "../../api/client";
import { MutedWords, Since } from "../../components/Health";
import { Reason } from "../../components/Text";
import { useNow } from "../../hooks/now";
import { capital } from "../../lib/format";
import { compared, pressed } from "../../lib/triage";
import { inWords } from "../activity/activity";
import { useLatestWrites } from "../activity/LastWrite";

/** Has room for a trouble while there is none, so that nothing moves when it comes. known: whether it is so now. */
export function Headline({
  topology,
  health,
  known,
}: {
  topology: string;
  health: Schemas["Health"];
  known: boolean;
}) {
  const now = useNow();
  const last = useLatestWrites(topology).find(({ done }) => done);
  const [worst] = health.troubles;
  const [muted] = health.muted;
  const more = health.troubles.length + health.muted.length - 1;
  const press = worst ? pressed(topology, worst) : null;
  return (
    <section
      className={`headline ${known ? health.severity : "unknown"}`}
      aria-label="What is the matter"
      data-trouble={worst?.code}
      data-muted={worst === undefined ? muted?.code : undefined}
    >
      <div>
        {!known && <p className="faint">The store or the service does not answer. This was seen last:</p>}
        {worst ? (
          <>
            <p className="what">
              <span aria-hidden="true">▲</span> {capital(worst.text)}.{" "}
            </p>
            <p>
              <Since since={worst.since} now={now} /> {compared(worst)}
              {worst.advice}
            </p>
          </>
        ) : muted ? (
          <p>
            <span aria-hidden="true">◌</span> <MutedWords of={muted} />
          </p>
        ) : (
          <p className="faint">Nothing needs a look.</p>
        )}
        {(last !== undefined || more > 0) && (
          <p className="last">
            {more > 0 && <a href="#health">{`And ${more} more`}</a>}
            {last !== undefined && (
              <Link to={`/t/${topology}/activity`}>
                <Reason text={inWords(last, now)} whole />
              </Link>
            )}
          </p>
        )}
      </div>
      {press?.to.startsWith("#") && (
        <a href={press.to} className="press">
          {press.words}
        </a>
      )}
      {press?.to.startsWith("/") && (
        <Link to={press.to} className="press">
          {press.words}
        </Link>
      )}
    </section>
  );
}
