import { client, data, Problem, type Schemas } from "./client";

/** A call by its id, and the name of its function: looked for in all functions of a topology; null without any. */
export async function callIn(
  topology: string,
  request: string,
  signal: AbortSignal,
): Promise<[string, Schemas["CallProgress"]] | null> {
  const { functions } = await data(client.GET("/api/v1/drpc", { signal }));
  for (const one of functions.filter((each) => each.topology === topology)) {
    try {
      return [
        one.function,
        await data(
          client.GET("/api/v1/drpc/{function}/{request_id}/steps", {
            params: { path: { function: one.function, request_id: request } },
            signal,
          }),
        ),
      ];
    } catch (error) {
      if (!(error instanceof Problem && error.kind === "unknown-request")) throw error;
    }
  }
  return null;
}

/** A function; null where there is none of the name. */
export async function functionOf(name: string, signal: AbortSignal): Promise<Schemas["Function"] | null> {
  try {
    return await data(
      client.GET("/api/v1/drpc/{function}", { params: { path: { function: name } }, signal }),
    );
  } catch (error) {
    if (error instanceof Problem && error.kind === "unknown-function") return null;
    throw error;
  }
}
