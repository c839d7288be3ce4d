// What colours mean.

import { ORIGINS } from "../../drafts/pass";
import type { Passes } from "../../drafts/passes";
import { reasonOf } from "../../drafts/reasons";
import { originWord } from "../../drafts/words";
import { drafts } from "../../server/facts";

/** The tints of the proposers; of drafters, those that are there. */
export function OriginLegend() {
  const absent = drafts("mtp") ? (drafts("draft") ? null : "draft") : "mtp";
  return (
    <ul class="legend" aria-label="Who proposed a token">
      {ORIGINS.filter((origin) => origin !== absent).map((origin) => (
        <li key={origin}>
          <span class={`swatch ${origin}`} />
          {originWord(origin)}
          {(origin === "draft" || origin === "mtp") && <small>stronger: deeper</small>}
        </li>
      ))}
    </ul>
  );
}

/** The colours of the reasons that occurred. */
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
