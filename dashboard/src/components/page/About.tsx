/** Which store this is, of which environment and version, and as whom somebody acts here. */

import { useQuery } from "@tanstack/react-query";
import { accessQuery } from "../../api/queries";
import { serviceQuery } from "../../api/service";
import { printable } from "../../lib/text";

/** How an environment looks: red where it matters most. Its name stands there, too. */
export function environmentKind(name: string): "critical" | "warn" | "calm" {
  if (/^(prod|live)/i.test(name)) return "critical";
  return /^(stag|pre|test|qa|uat)/i.test(name) ? "warn" : "calm";
}

export function Environment() {
  const { data } = useQuery(serviceQuery());
  if (!data?.environment) return null;
  return (
    <b className={`environment ${environmentKind(data.environment)}`} title="Environment">
      {printable(data.environment)}
    </b>
  );
}

export function About() {
  const { data } = useQuery(serviceQuery());
  const access = useQuery(accessQuery());
  if (data === undefined) return <p className="about" />; // its place, so that nothing moves when it comes
  return (
    <p className="about faint">
      <span>
        Store <bdi className="mono">{printable(data.store)}</bdi>
      </span>
      <span>acker {data.version}</span>
      <span>
        as <bdi>{printable(data.client)}</bdi>
        {!data.proved && " (not proved)"}
        {access.data && `, scope ${access.data.scope}`}
      </span>
    </p>
  );
}
