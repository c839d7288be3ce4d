// What the colours of a plot mean.

export interface Entry {
  /** Class of the colour. */
  colour: string;
  shape: "dot" | "line" | "area" | "dashes";
  text: string;
}

export function Legend({ entries }: { entries: Entry[] }) {
  return (
    <ul class="legend">
      {entries.map(({ colour, shape, text }) => (
        <li key={text}>
          <svg width="20" height="12" aria-hidden="true" class={colour}>
            {shape === "dot" && <circle class="dot" cx="10" cy="6" r="4" />}
            {shape === "area" && <rect class="area" x="3" y="1" width="14" height="10" rx="2" />}
            {shape === "line" && <line class="line" x1="1" x2="19" y1="6" y2="6" />}
            {shape === "dashes" && <line class="dashes" x1="1" x2="19" y1="6" y2="6" />}
          </svg>
          {text}
        </li>
      ))}
    </ul>
  );
}
