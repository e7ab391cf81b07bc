import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import type { Schemas } from "../../api/client";
import { callInQuery } from "../../api/functions";
import { knownTreeQuery } from "../../api/queries";
import { Status } from "../../components/Mark";
import { Empty, Loaded } from "../../components/Notice";
import { MessageId } from "../../components/Text";
import { useIsOfLine } from "../lines/useIsOfLine";
import { useUrl } from "../../hooks/url";
import { CALL_KINDS, callPath, REQUEST } from "../functions/functions";
import { requestPath, SECTIONS } from "../lines/lines";
import { anchorIn, literally, messageIdText } from "../../lib/records";
import { Search } from "./Search";

const DEFAULTS = { id: "" };

/** A record by its message id, or by the anchor of one of its trees. */
export function Find() {
  const { topology = "" } = useParams();
  const [{ id }] = useUrl(DEFAULTS);
  const anchor = anchorIn(id);
  const tree = useQuery({
    ...knownTreeQuery(topology, anchor ?? ""),
    enabled: anchor !== null,
    refetchOnWindowFocus: false,
  });
  const ofLine = useIsOfLine(topology, anchor);
  const literal = literally(id);
  const named =
    tree.data != null && tree.data.message_id_base64 !== null && tree.data.spout !== SECTIONS
      ? messageIdText(tree.data)
      : null;
  return (
    <>
      <div className="title">
        <h1>Find a record</h1>
        {id !== "" && (
          <Link to={`/find?${new URLSearchParams({ id }).toString()}`}>Look in all topologies</Link>
        )}
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
            {ofLine && (
              <p>
                It is of a line: <Link to={requestPath(topology, anchor)}>how far its request is</Link>
              </p>
            )}
          </Loaded>
        </section>
      )}
      {REQUEST.test(id.trim()) && <CallOf topology={topology} request={id.trim()} />}
      {named !== null && named !== id && <Search topology={topology} id={named} />}
      {id !== "" && <Search topology={topology} id={id} />}
      {literal !== null && <Search topology={topology} id={literal} />}
    </>
  );
}

/** The call of a function of the topology that has an id, if there is one. */
function CallOf({ topology, request }: { topology: string; request: string }) {
  const found = useQuery(callInQuery(topology, request));
  if (!found.data) return null;
  const [name, { call }] = found.data;
  return (
    <section aria-label="Call of this id">
      <h2>Call</h2>
      <p className="panel toolbar">
        <Status kind={CALL_KINDS[call.status]} word={call.status} />
        <Link className="mono wrap" to={callPath(name, request)}>
          {request}
        </Link>
        <span className="faint">of function {name}</span>
      </p>
    </section>
  );
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
