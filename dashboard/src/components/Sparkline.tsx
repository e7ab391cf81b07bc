/** A line of a few pixels, scaled to its highest point. */

const WIDTH = 240;
const HEIGHT = 44;

export function Sparkline({ values, label }: { values: (number | null)[]; label: string }) {
  const most = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const step = WIDTH / Math.max(1, values.length - 1);
  const line = values
    .map(
      (value, index) =>
        `${(index * step).toFixed(1)},${(HEIGHT - 2 - ((value ?? 0) / most) * (HEIGHT - 6)).toFixed(1)}`,
    )
    .join(" ");
  return (
    <svg
      className="sparkline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      {values.length > 1 && (
        <>
          <polygon points={`0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}`} />
          <polyline points={line} />
        </>
      )}
    </svg>
  );
}
