// Slots: what each one does, and how much of its context it holds.

import type { LiveSlot } from "../../server/answers";
import { digits, percent, whole } from "../../machine/words";
import { Card } from "./card";

export function SlotsCard({ slots, waiting }: { slots: LiveSlot[]; waiting: number }) {
  const busy = slots.filter((slot) => slot.state !== "idle").length;
  const aside = `${busy} of ${slots.length} busy${waiting ? `, ${waiting} waiting` : ""}`;
  return (
    <Card id="slots" title="Slots" aside={aside}>
      <ul class="slots">{slots.map((slot) => <SlotRow key={slot.id} slot={slot} />)}</ul>
    </Card>
  );
}

function SlotRow({ slot }: { slot: LiveSlot }) {
  const held = slot.held ?? 0;
  return (
    <li class={slot.state}>
      <div class="slot-line">
        <b>Slot {slot.id}</b>
        <span class="pill">{slot.state}</span>
        <span class="doing">{doing(slot)}</span>
      </div>
      <Fill value={held} whole={slot.n_ctx} label={`context of slot ${slot.id}`} />
      <div class="slot-line note">
        <span>
          {whole(held)} of {whole(slot.n_ctx)} tokens held ({percent(held / slot.n_ctx)})
        </span>
        <span class="speeds">
          {slot.tokens_per_second !== null && <span>{digits(slot.tokens_per_second)} tok/s</span>}
          {slot.acceptance_length !== null && <span>AL {slot.acceptance_length.toFixed(2)}</span>}
        </span>
      </div>
    </li>
  );
}

function doing({ state, task, tokens, max_tokens, prompt, read, cached }: LiveSlot): string {
  if (task === null) return "nothing yet";
  if (state === "reading") {
    return `request ${task}: ${whole(read!)} of ${whole(prompt!)} tokens read, ${whole(cached!)} cached`;
  }
  const most = max_tokens !== null && max_tokens >= 0 ? ` of at most ${whole(max_tokens)}` : "";
  if (state === "writing") return `request ${task}: ${whole(tokens!)}${most} tokens written`;
  return `last: request ${task}, ${whole(tokens!)} tokens`;
}

export function Fill({ value, whole: all, label }: { value: number; whole: number; label: string }) {
  return <progress class="fill" value={value} max={all} aria-label={label} />;
}
