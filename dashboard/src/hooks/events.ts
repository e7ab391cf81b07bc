/** The live events of a topology. */

import { useEffect, useRef, useState } from "react";
import { ADDRESS, authorized, Problem, problem } from "../api/client";
import { readEvents, type ServerEvent } from "../api/sse";

/** `live`: events come. `lost`: they do not, and it is tried again. */
export type Connection = "connecting" | "live" | "lost";

/** Milliseconds without a word after which a connection is taken for dead; a sample comes each second. */
const SILENCE = 10_000;
const PAUSES = [500, 1000, 2000, 5000, 10_000];

/** Calls `listen` for each event, and connects again from the last one whenever the stream ends. */
export function useEvents(topology: string, listen: (event: ServerEvent) => void): Connection {
  const [connection, setConnection] = useState<Connection>("connecting");
  const listener = useRef(listen);
  useEffect(() => {
    listener.current = listen;
  });
  useEffect(() => {
    const stop = new AbortController();
    void follow(topology, stop.signal, setConnection, (event) => listener.current(event));
    return () => stop.abort();
  }, [topology]);
  return connection;
}

async function follow(
  topology: string,
  stop: AbortSignal,
  tell: (connection: Connection) => void,
  listen: (event: ServerEvent) => void,
): Promise<void> {
  let last = "";
  let failures = 0;
  const ended = () => stop.aborted;
  tell("connecting");
  while (!ended()) {
    const silence = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE);
    };
    try {
      heard();
      const response = await authorized(
        new Request(`${ADDRESS}/api/v1/topologies/${encodeURIComponent(topology)}/events`, {
          headers: last === "" ? {} : { "Last-Event-ID": last },
          signal: AbortSignal.any([stop, silence.signal]),
        }),
      );
      if (!response.ok || response.body === null) throw problem(response.status, await body(response));
      for await (const event of readEvents(response.body)) {
        heard();
        if (event.id !== "") last = event.id;
        failures = 0;
        tell("live");
        listen(event);
      }
    } catch (error) {
      if (ended()) return;
      // An id that the service does not take must not keep the stream from coming back.
      if (error instanceof Problem && error.status === 422) last = "";
      failures += 1;
    } finally {
      clearTimeout(timer);
    }
    if (failures > 0) tell("lost");
    await pause(PAUSES[Math.min(failures, PAUSES.length - 1)] ?? 0, stop);
  }
}

async function body(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    return null;
  }
}

function pause(milliseconds: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    stop.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
