/** Server-sent events over `fetch`: EventSource can send no token. */

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/** Most characters of one event: what sends more is not our service. */
const MOST = 1_000_000;

/** Yields the events of a body as they come, until it ends. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  let id = "";
  let event = "message";
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += value;
      if (rest.length > MOST) throw new Error("an event is too long");
      // A carriage return at the end may be the first half of a line's end.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { id, event, data: data.join("\n") };
          event = "message";
          data = [];
          continue;
        }
        const [, field, content] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
        if (field === "id" && content !== undefined) id = content;
        else if (field === "event") event = content ?? "";
        else if (field === "data") data.push(content ?? "");
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
