// What colours mean.

import { ORIGINS } from "../../drafts/pass";
import type { Passes } from "../../drafts/passes";
import { reasonOf } from "../../drafts/reasons";
import { ORIGIN_WORDS } from "../../drafts/words";

/** Which tint is whose. */
export function OriginLegend() {
  return (
    <ul class="legend" aria-label="Who proposed a token">
      {ORIGINS.map((origin) => (
        <li key={origin}>
          <span class={`swatch ${origin}`} />
          {ORIGIN_WORDS[origin]}
          {origin === "draft" && <small>stronger: deeper</small>}
        </li>
      ))}
    </ul>
  );
}

/** Which colour is which of the reasons that there were. */
export function ReasonLegend({ passes }: { passes: Passes }) {
  return (
    <ul class="legend" aria-label="Why so many nodes">
      {[...passes.reasons].map(([name, count]) => (
        <li key={name} title={reasonOf(name).meaning}>
          <span class={`swatch ${reasonOf(name).colour}`} />
          {name} <small>{count.toLocaleString("en")}</small>
        </li>
      ))}
    </ul>
  );
}
