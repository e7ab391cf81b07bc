import { useEffect, useState } from "react";
import { Link } from "react-router";
import { lookFor, topologyNames, type Hit } from "../../api/service";
import { Status } from "../../components/Mark";
import { Empty } from "../../components/Notice";
import { useUrl } from "../../hooks/url";
import { count, plural } from "../../lib/format";
import { anchorIn } from "../../lib/records";

const DEFAULTS = { id: "" };
/** Topologies that are asked at once. */
const AT_ONCE = 4;

interface Search {
  looked: number;
  of: number | null;
  hits: Hit[];
  /** Topologies in which there is more to search. */
  more: string[];
  /** Topologies that could not be asked, with the reason. */
  failed: { topology: string; why: string }[];
  trouble: string | null;
}

const NOTHING: Search = { looked: 0, of: null, hits: [], more: [], failed: [], trouble: null };

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
  const { looked, of, hits, more, failed, trouble } = useSearch(id);
  const path = (topology: string) => `/t/${topology}/find?${new URLSearchParams({ id }).toString()}`;
  const done = of !== null && looked === of;
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
        {hits.map(({ topology, tree, attempts, letters }) => (
          <li key={topology} className="panel toolbar">
            <Link to={path(topology)}>
              <b>{topology}</b>
            </Link>
            {tree !== null && (
              <>
                <Status kind={tree.outcome?.status ?? tree.tree?.state ?? "finished"} />
                <Link className="mono wrap" to={`/t/${topology}/trees/${tree.anchor}`}>
                  {tree.anchor}
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
          {more.length === 0
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
      {failed.map(({ topology, why }) => (
        <p key={topology} className="faint">
          {topology} could not be searched: {why}
        </p>
      ))}
    </>
  );
}

/** Asks all topologies, some at once, and shows what is found as it comes. */
function useSearch(id: string): Search {
  const [search, setSearch] = useState(NOTHING);
  useEffect(() => {
    const ending = new AbortController();
    const anchor = anchorIn(id);
    const look = async (topology: string) => {
      try {
        const hit = await lookFor(topology, id, anchor, ending.signal);
        const known = hit.tree !== null || hit.attempts + hit.letters > 0;
        setSearch((before) => ({
          ...before,
          looked: before.looked + 1,
          hits: known ? [...before.hits, hit] : before.hits,
          more: hit.more && !known ? [...before.more, topology] : before.more,
        }));
      } catch (error) {
        if (ending.signal.aborted) return;
        const why = error instanceof Error ? error.message : String(error);
        setSearch((before) => ({
          ...before,
          looked: before.looked + 1,
          failed: [...before.failed, { topology, why }],
        }));
      }
    };
    const run = async () => {
      try {
        const names = await topologyNames(ending.signal);
        setSearch({ ...NOTHING, of: names.length });
        const waiting = names.values();
        const worker = async () => {
          for (const name of waiting) {
            if (ending.signal.aborted) return;
            await look(name);
          }
        };
        await Promise.all(Array.from({ length: AT_ONCE }, worker));
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
