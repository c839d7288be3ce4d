// A card: one fact about the machine.

import type { ComponentChildren } from "preact";

interface Props {
  id: string;
  title: string;
  /** Beside the title. */
  aside?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}

export function Card({ id, title, aside, children, ...rest }: Props) {
  return (
    <section class={`card ${rest.class ?? ""}`} aria-labelledby={`machine-${id}`} data-card={id}>
      <header>
        <h2 id={`machine-${id}`}>{title}</h2>
        {aside && <span class="aside">{aside}</span>}
      </header>
      {children}
    </section>
  );
}

/** Names and values, one under the other. */
export function Values({ values }: { values: [string, ComponentChildren][] }) {
  return (
    <dl class="values">
      {values.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
