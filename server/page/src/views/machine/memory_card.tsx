// Memory: what the engine allocated, by part, beside what the process and the computer have.

import { Stack } from "../../charts/stack";
import type { Machine, MemoryPart } from "../../server/answers";
import { bytes, percent, whole } from "../../machine/words";
import { Card } from "./card";
import { Fill } from "./slots_card";

const PARTS: Record<MemoryPart["part"], { colour: string; name: string }> = {
  target: { colour: "plot-1", name: "target’s weights" },
  drafter: { colour: "plot-2", name: "drafter’s weights" },
  context: { colour: "plot-3", name: "target’s context (KV cache)" },
  drafter_context: { colour: "plot-4", name: "drafter’s context" },
  compute: { colour: "plot-5", name: "compute buffers of the target" },
  host_cache: { colour: "plot-6", name: "conversations kept on the host" },
};
const PLACES = { cpu: "in main memory", gpu: "on the GPU", split: "GPU and main memory" };

export function MemoryCard({ machine }: { machine: Machine }) {
  const { memory, computer } = machine;
  const sum = memory.parts.reduce((all, { bytes }) => all + bytes, 0);
  const stacked = memory.parts.map(({ part, bytes: size }) => ({
    colour: PARTS[part].colour,
    value: size,
    text: `${PARTS[part].name}: ${bytes(size)}`,
  }));
  const label = `Memory by part: ${stacked.map((part) => part.text).join(", ")}`;
  return (
    <Card id="memory" title="Memory" aside={`${bytes(sum)} in all parts`}>
      <Stack label={label} parts={stacked} whole={sum} />
      <table class="parts">
        <tbody>
          {memory.parts.map(({ part, bytes: size, on }) => (
            <tr key={part}>
              <th scope="row"><span class={`swatch ${PARTS[part].colour}`} />{PARTS[part].name}</th>
              <td>{bytes(size)}</td>
              <td class="note">{PLACES[on]}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {memory.slot_state !== undefined && (
        <p class="note">
          A sequence’s recurrent state takes {bytes(memory.slot_state)}, and {bytes(memory.slot_tape ?? 0)} to roll it
          back.
        </p>
      )}
      <Fills machine={machine} />
      {memory.process.resident > 0 && (
        <p class="note">
          The process has {bytes(memory.process.resident)} in memory ({bytes(memory.process.peak)} at most),{" "}
          {bytes(memory.process.files)} of it mapped from files, which the system can take back. It holds more than the
          parts (programs, the drafter’s buffers), and weights only as far as they were read. The computer has{" "}
          {bytes(computer.memory_available)} left.
        </p>
      )}
    </Card>
  );
}

function Fills({ machine: { memory, computer } }: { machine: Machine }) {
  const { cells, host_cache: kept, process } = memory;
  const fills: { name: string; value: number; all: number; text: string }[] = [];
  if (process.resident && computer.memory_total) {
    const text = `${bytes(process.resident)} of ${bytes(computer.memory_total)}`;
    fills.push({ name: "the process, of the computer", value: process.resident, all: computer.memory_total, text });
  }
  if (cells && cells.size) {
    const text = `${whole(cells.used)} of ${whole(cells.size)} tokens (${percent(cells.used / cells.size)})`;
    fills.push({ name: "the slots’ context in use", value: cells.used, all: cells.size, text });
  }
  if (kept && kept.limit) {
    const text = `${whole(kept.conversations)} conversations, ${bytes(kept.bytes)} of ${bytes(kept.limit)}`;
    fills.push({ name: "kept on the host", value: kept.bytes, all: kept.limit, text });
  }
  return (
    <ul class="fills">
      {fills.map(({ name, value, all, text }) => (
        <li key={name}>
          <span>{name}</span>
          <Fill value={value} whole={all} label={name} />
          <span class="note">{text}</span>
        </li>
      ))}
    </ul>
  );
}
