import { expect, test } from "vitest";
import { readEvents, type ServerEvent } from "./sse";

async function parse(...parts: string[]): Promise<ServerEvent[]> {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      parts.forEach((part) => controller.enqueue(encoder.encode(part)));
      controller.close();
    },
  });
  const found: ServerEvent[] = [];
  for await (const event of readEvents(body)) found.push(event);
  return found;
}

test("events are read whole however they are cut", async () => {
  const text = ': hello\n\nevent: sample\nid: 5-0\ndata: {"a":\ndata: 1}\n\r\ndata: x\r\n\r\n';
  const events = [
    { id: "5-0", event: "sample", data: '{"a":\n1}' },
    { id: "5-0", event: "message", data: "x" },
  ];
  expect(await parse(text)).toEqual(events);
  expect(await parse(...Array.from(text))).toEqual(events);
});

test("an event that is cut off by the end is dropped, and one without data is none", async () => {
  expect(await parse("event: sample\n\nid: 1\ndata: whole\n\ndata: cut")).toEqual([
    { id: "1", event: "message", data: "whole" },
  ]);
});

test("a stream that never ends an event is refused", async () => {
  await expect(parse("data: " + "x".repeat(1_000_001))).rejects.toThrow("too long");
});
