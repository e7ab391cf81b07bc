import { printable } from "../../lib/text";

/** A process that has reported what its bolts in plain Python have. */
export function process({ pid, program, host }: { pid: number; program: string; host: string }): string {
  return printable(`${pid} (${program}) on host ${host}`);
}
