/** The removal of a topology, or of a subscription: asked for, confirmed by its name, and reported after. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import { client, data, type Schemas } from "../../api/client";
import { renewTopology } from "../../api/queries";
import { Confirm } from "../../components/Confirm";
import { OperatorButton, ReadOnly } from "../../components/Operator";
import { count, plural } from "../../lib/format";

interface Subscribed {
  stream: string;
  subscription: string;
  behind: number;
}

/** What can be removed: a subscription that nobody reads any more, and the topology with all that it holds. */
export function Removal({ of }: { of: Schemas["TopologyState"] }) {
  const [asking, setAsking] = useState<Subscribed | "topology" | null>(null);
  const [chosen, setChosen] = useState("");
  const [said, setSaid] = useState("");
  const subscribed = of.streams.flatMap(({ stream, subscriptions }) =>
    subscriptions.flatMap(({ subscription, rows_behind: behind }) =>
      subscription === null ? [] : [{ stream, subscription, behind }],
    ),
  );
  const choice = subscribed.find((one) => id(one) === chosen);
  return (
    <section aria-labelledby="removal-title">
      <h2 id="removal-title">Remove</h2>
      <div className="toolbar actions">
        {subscribed.length > 0 && (
          <>
            <label className="field">
              <span>Subscription</span>
              <select
                value={choice === undefined ? "" : chosen}
                onChange={(event) => setChosen(event.target.value)}
              >
                <option value="">choose one</option>
                {subscribed.map((one) => (
                  <option key={id(one)} value={id(one)}>
                    {one.subscription} of {one.stream}
                  </option>
                ))}
              </select>
            </label>
            <OperatorButton
              kind="danger"
              disabled={choice === undefined}
              press={() => choice && setAsking(choice)}
            >
              Remove subscription…
            </OperatorButton>
          </>
        )}
        <OperatorButton kind="danger" disabled={false} press={() => setAsking("topology")}>
          Remove topology…
        </OperatorButton>
        <ReadOnly />
        <span role="status">{said}</span>
      </div>
      {asking === "topology" && <RemoveTopology of={of} close={() => setAsking(null)} />}
      {asking !== null && asking !== "topology" && (
        <RemoveSubscription topology={of.topology} of={asking} done={setSaid} close={() => setAsking(null)} />
      )}
    </section>
  );
}

function id({ stream, subscription }: Subscribed): string {
  return `${stream} ${subscription}`;
}

function RemoveTopology({ of, close }: { of: Schemas["TopologyState"]; close: () => void }) {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const held = of.outstanding > 0 || of.waiting_slabs > 0;
  const remove = async () => {
    await data(
      client.DELETE("/api/v1/topologies/{topology}", {
        params: { path: { topology: of.topology }, query: { force: held } },
      }),
    );
    await navigate("/");
    queries.removeQueries({ queryKey: ["topology", of.topology] });
  };
  return (
    <Confirm
      title={`Remove topology ${of.topology}?`}
      action="Remove topology"
      danger
      typed={of.topology}
      run={remove}
      close={close}
    >
      <p>
        Its trees, outcomes, streams, kept rows, {plural(of.dead_letters, "dead letter")}, history and
        settings are gone for good. Stop its jobs first: one that still works on it makes it anew.
      </p>
      {held && (
        <p>
          <b>
            {count(of.outstanding)} {of.outstanding === 1 ? "tree is" : "trees are"} in flight, or
            {of.outstanding === 1 ? " has" : " have"} an outcome that is not confirmed: no spout hears of them
            again.
          </b>
        </p>
      )}
    </Confirm>
  );
}

function RemoveSubscription({
  topology,
  of,
  done,
  close,
}: {
  topology: string;
  of: Subscribed;
  done: (said: string) => void;
  close: () => void;
}) {
  const queries = useQueryClient();
  const { stream, subscription, behind } = of;
  const remove = async () => {
    const { segments } = await data(
      client.DELETE("/api/v1/topologies/{topology}/streams/{stream}/subscriptions/{subscription}", {
        params: { path: { topology, stream, subscription } },
      }),
    );
    done(`Subscription ${subscription} of ${stream} is gone; ${plural(segments, "segment")} failed.`);
    void renewTopology(queries, topology);
  };
  return (
    <Confirm
      title={`Remove subscription ${subscription} of stream ${stream}?`}
      action="Remove subscription"
      danger
      typed={subscription}
      run={remove}
      close={close}
    >
      <p>
        {plural(behind, "row")} {behind === 1 ? "waits" : "wait"} for it. The trees of what it has not acked
        fail, and are replayed for the other subscriptions. Its readers end with an error.
      </p>
    </Confirm>
  );
}
