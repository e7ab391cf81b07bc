import { useEffect, useState } from "react";
import { Link } from "react-router";
import { lookEverywhere, type Everywhere, type Hit } from "../../api/service";
import { Status } from "../../components/Mark";
import { Empty } from "../../components/Notice";
import { useUrl } from "../../hooks/url";
import { count, plural } from "../../lib/format";
import { anchorIn } from "../../lib/records";

const DEFAULTS = { id: "" };
interface Search {
  looked: number;
  of: number | null;
  hits: Hit[];
  /** Topologies that were searched in part. */
  more: string[];
  /** Topologies that could not be searched, with the reason. */
  failed: Everywhere["unreadable"];
  /** Whether all topologies were asked. */
  done: boolean;
  trouble: string | null;
}

const NOTHING: Search = { looked: 0, of: null, hits: [], more: [], failed: [], done: false, trouble: null };

/** A record among all topologies, by its message id, or by the anchor of one of its trees. */
export function FindAll() {
  const [{ id }] = useUrl(DEFAULTS);
  return (
    <>
      <div className="title">
        <h1>Find a record in all topologies</h1>
      </div>
      {id === "" ? (
        <Empty>Enter a message id, or the anchor of a tree, in the box above.</Empty>
      ) : (
        <Finds key={id} id={id} />
      )}
    </>
  );
}

function Finds({ id }: { id: string }) {
  const { looked, of, hits, more, failed, done, trouble } = useSearch(id);
  const path = (topology: string) => `/t/${topology}/find?${new URLSearchParams({ id }).toString()}`;
  return (
    <>
      {trouble !== null && (
        <p className="notice failure" role="alert">
          <span aria-hidden="true">⚠</span> {trouble}
        </p>
      )}
      <p className="faint" role="status">
        Looked at {count(looked)} of {of === null ? "all" : count(of)} topologies
        {done ? `; found in ${count(hits.length)}.` : "…"}
      </p>
      <ul className="finds">
        {hits.map(({ topology, anchor, state, attempts, dead_letters: letters }) => (
          <li key={topology} className="panel toolbar">
            <Link to={path(topology)}>
              <b>{topology}</b>
            </Link>
            {anchor !== null && (
              <>
                <Status kind={state ?? "finished"} />
                <Link className="mono wrap" to={`/t/${topology}/trees/${anchor}`}>
                  {anchor}
                </Link>
              </>
            )}
            {attempts > 0 && <span>{plural(attempts, "attempt")}</span>}
            {letters > 0 && <span>{plural(letters, "dead letter")}</span>}
          </li>
        ))}
      </ul>
      {done && hits.length === 0 && (
        <Empty>
          {more.length + failed.length === 0
            ? "No topology knows it. It was never tracked, it was acked and confirmed, or it ended too long ago."
            : "Nothing found so far."}
        </Empty>
      )}
      {more.length > 0 && (
        <p className="links wrapped">
          There is more to search in{" "}
          {more.map((topology) => (
            <Link key={topology} to={path(topology)}>
              {topology}
            </Link>
          ))}
        </p>
      )}
      {failed.map(({ topology, reason }) => (
        <p key={topology} className="faint">
          {topology} could not be searched: {reason}
        </p>
      ))}
    </>
  );
}

/** Asks all topologies, a page at a time, and shows what is found as it comes. */
function useSearch(id: string): Search {
  const [search, setSearch] = useState(NOTHING);
  useEffect(() => {
    const ending = new AbortController();
    const anchor = anchorIn(id);
    const run = async () => {
      let cursor: string | null = null;
      try {
        do {
          const page: Everywhere = await lookEverywhere(id, anchor, cursor, ending.signal);
          cursor = page.cursor;
          setSearch((before) => ({
            looked: page.looked,
            of: page.of,
            hits: [...before.hits, ...page.topologies],
            more: [...before.more, ...page.unfinished],
            failed: [...before.failed, ...page.unreadable],
            done: page.cursor === null,
            trouble: null,
          }));
        } while (cursor !== null);
      } catch (error) {
        if (ending.signal.aborted) return;
        const trouble = error instanceof Error ? error.message : String(error);
        setSearch((before) => ({ ...before, trouble }));
      }
    };
    void run();
    return () => ending.abort();
  }, [id]);
  return search;
}
