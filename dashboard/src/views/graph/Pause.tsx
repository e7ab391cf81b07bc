/** The pause of a spout with its author, begin and reason, and the buttons of an operator. */

import { useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { client, data, ended, type Schemas } from "../../api/client";
import { renewTopology } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { Reason } from "../../components/Text";
import { instant } from "../../lib/format";

/** Most characters of a reason: the service takes 1,024 bytes of UTF-8, which are at most four a character. */
const REASON_LENGTH = 256;

type Asked = "pause" | "resume" | null;

export function Pause({
  topology,
  spout,
  paused,
}: {
  topology: string;
  spout: string;
  paused: Schemas["PausedSpout"] | null;
}) {
  const [asked, setAsked] = useState<Asked>(null);
  const [said, setSaid] = useState("");
  const done = (now: string) => {
    setSaid(now);
    setAsked(null);
  };
  return (
    <>
      {paused !== null && <Paused of={paused} />}
      <div className="toolbar actions">
        {/* One button, which keeps the focus when the other action takes its place. */}
        <OperatorButton disabled={false} press={() => setAsked(paused?.whole === true ? "resume" : "pause")}>
          {paused === null ? "Pause spout…" : paused.whole ? "Resume spout…" : "Pause again…"}
        </OperatorButton>
        {paused !== null && !paused.whole && (
          <OperatorButton disabled={false} press={() => setAsked("resume")}>
            Resume spout…
          </OperatorButton>
        )}
        <ReadOnly />
        <span role="status">{said}</span>
      </div>
      {asked !== null && (
        <Ask
          action={asked}
          topology={topology}
          spout={spout}
          reason={paused?.reason ?? ""}
          done={done}
          close={() => setAsked(null)}
        />
      )}
    </>
  );
}

function Paused({ of: { by, reason, since, whole } }: { of: Schemas["PausedSpout"] }) {
  return (
    <p className={whole ? "paused faint" : "paused"}>
      <span aria-hidden="true">◌</span> Paused{whole ? "" : " in part"}
      {by !== "" && (
        <>
          {" "}
          by <Reason text={by} whole />
        </>
      )}
      {since !== null && (
        <>
          {" "}
          since <time dateTime={since}>{instant(since)}</time>
        </>
      )}
      {reason !== "" && (
        <>
          : <Reason text={reason} whole />
        </>
      )}
      {!whole && ". A part of the store still takes its tracks: pause it again, or resume it."}
    </p>
  );
}

function Ask({
  action,
  topology,
  spout,
  reason: before,
  done,
  close,
}: {
  action: "pause" | "resume";
  topology: string;
  spout: string;
  reason: string;
  done: (said: string) => void;
  close: () => void;
}) {
  const queries = useQueryClient();
  const [reason, setReason] = useState(before);
  const field = useId();
  const path = { topology, spout };
  const run = async () => {
    const at = "/api/v1/topologies/{topology}/spouts/{spout}/pause" as const;
    try {
      if (action === "pause") await data(client.PUT(at, { params: { path }, body: { reason } }));
      else await ended(client.DELETE(at, { params: { path } }));
    } finally {
      void renewTopology(queries, topology);
    }
    done(action === "pause" ? "It is paused." : "It goes on.");
  };
  if (action === "resume")
    return (
      <Confirm title={`Resume spout ${spout}?`} action="Resume spout" run={run} close={close}>
        <p>It tracks again. Rows of Spark jobs that wait for it go on by themselves.</p>
      </Confirm>
    );
  return (
    <Confirm title={`Pause spout ${spout}?`} action="Pause spout" danger run={run} close={close}>
      <p>
        Its new tracks are rejected, and rows of Spark jobs wait, until somebody resumes it. What it has in
        flight goes on.
      </p>
      <label htmlFor={field}>Reason</label>
      <input
        id={field}
        value={reason}
        maxLength={REASON_LENGTH}
        onChange={(event) => setReason(event.target.value)}
      />
    </Confirm>
  );
}
