import { TIME_NAMES, TIMES } from "./time";

/** Chooses the time of which calls are counted. */
export function TimeChoice({ time, choose }: { time: string; choose: (time: string) => void }) {
  return (
    <div className="segments two" role="group" aria-label="Counted">
      {TIMES.map((one) => (
        <button key={one} type="button" aria-pressed={one === time} onClick={() => choose(one)}>
          {TIME_NAMES[one]}
        </button>
      ))}
    </div>
  );
}
