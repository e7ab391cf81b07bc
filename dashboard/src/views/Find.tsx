import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { client, data, Problem, type Schemas } from "../api/client";
import { Status } from "../components/Mark";
import { Empty, Loaded } from "../components/Notice";
import { MessageId } from "../components/Text";
import { useUrl } from "../hooks/url";
import { anchorIn, literally, messageIdText } from "../lib/records";
import { Search } from "./Search";

const DEFAULTS = { id: "" };

/** A record by its message id, or by the anchor of one of its trees. */
export function Find() {
  const { topology = "" } = useParams();
  const [{ id }] = useUrl(DEFAULTS);
  const anchor = anchorIn(id);
  const tree = useQuery({
    queryKey: ["records", topology, "anchor", anchor],
    queryFn: ({ signal }) => treeAt(topology, anchor ?? "", signal),
    enabled: anchor !== null,
    refetchOnWindowFocus: false,
  });
  const literal = literally(id);
  const named = tree.data != null && tree.data.message_id_base64 !== null ? messageIdText(tree.data) : null;
  return (
    <>
      <div className="title">
        <h1>Find a record</h1>
      </div>
      {id === "" && <Empty>Enter a message id, or the anchor of a tree, in the box above.</Empty>}
      {anchor !== null && (
        <section aria-label="Tree of this anchor">
          <h2>By anchor</h2>
          <Loaded query={tree} what="the tree">
            {tree.data ? (
              <TreeLine topology={topology} of={tree.data} />
            ) : (
              <p className="faint">No tree of this anchor is known.</p>
            )}
          </Loaded>
        </section>
      )}
      {named !== null && named !== id && <Search topology={topology} id={named} />}
      {id !== "" && <Search topology={topology} id={id} />}
      {literal !== null && <Search topology={topology} id={literal} />}
    </>
  );
}

async function treeAt(
  topology: string,
  anchor: string,
  signal: AbortSignal,
): Promise<Schemas["TreeState"] | null> {
  try {
    return await data(
      client.GET("/api/v1/topologies/{topology}/trees/{anchor}", {
        params: { path: { topology, anchor } },
        signal,
      }),
    );
  } catch (error) {
    if (error instanceof Problem && error.kind === "unknown-tree") return null;
    throw error;
  }
}

function TreeLine({ topology, of }: { topology: string; of: Schemas["TreeState"] }) {
  return (
    <p className="panel toolbar">
      <Status kind={of.outcome?.status ?? of.tree?.state ?? "finished"} />
      <Link className="mono wrap" to={`/t/${topology}/trees/${of.anchor}`}>
        {of.anchor}
      </Link>
      <span className="faint">message id</span> <MessageId of={of} whole />
    </p>
  );
}
