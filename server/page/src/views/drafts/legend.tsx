// Which tint is whose.

import { ORIGINS } from "../../drafts/pass";
import { ORIGIN_WORDS } from "../../drafts/words";

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
