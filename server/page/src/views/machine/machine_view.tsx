// The machine: what runs here, what it takes, and how fast it goes.

import { useEffect } from "preact/hooks";
import { useCell } from "../../cell";
import type { History } from "../../machine/history";
import type { Computer, Machine } from "../../server/answers";
import { seen, trouble, watch } from "../../machine/watch";
import { bytes } from "../../machine/words";
import { facts } from "../../server/facts";
import { chosen } from "../../server/models";
import { Welcome } from "../welcome";
import { ChoicesCard } from "./choices_card";
import { CostCard } from "./cost_card";
import { DevicesCard } from "./devices_card";
import { MemoryCard } from "./memory_card";
import { PairCard } from "./pair_card";
import { SlotsCard } from "./slots_card";
import { ThroughputCard } from "./throughput_card";

export function MachineView() {
  const known = useCell(facts);
  const model = useCell(chosen);
  const isReady = known.state === "ready";
  const isAway = known.state === "waiting" && known.isAway;
  const hasFigures = useCell(seen).state === "told"; // old ones are better than none
  useEffect(() => (isReady ? watch() : undefined), [isReady, model]);
  return (
    <main class="machine" aria-label="This machine" tabIndex={0}>
      {isReady || (isAway && hasFigures) ? <Told /> : <Welcome />}
    </main>
  );
}

function Told() {
  const told = useCell(seen);
  const why = useCell(trouble);
  return (
    <>
      {why && <p class="error" role="alert">{why}</p>}
      {told.state === "waiting" && !why && <p class="waiting"><span class="dots" />asking the server</p>}
      {told.state === "refused" && <p class="error" role="alert">{told.message}</p>}
      {told.state === "unloaded" && <Unloaded {...told} />}
      {told.state === "told" && <Cards machine={told.machine} history={told.history} />}
    </>
  );
}

function Cards({ machine, history }: { machine: Machine; history: History }) {
  const { costs, roofline, choices, slots } = machine;
  return (
    <>
      {machine.state === "sleeping" && (
        <p class="state">
          The model sleeps: its memory is given back until the next request. These are its last figures.
        </p>
      )}
      {machine.state === "lost" && (
        <p class="error">
          An RPC server was lost: the model is loaded again as soon as it is back. These are its last figures.
        </p>
      )}
      {machine.state === "dead" && <p class="error">The engine is dead: the server’s log says why.</p>}
      <div class="cards">
        {machine.throughput ? <ThroughputCard machine={machine} history={history} /> : <SwitchedOff what="metrics" />}
        {slots ? <SlotsCard slots={slots} waiting={machine.throughput?.waiting ?? 0} /> : <SwitchedOff what="slots" />}
        {costs && <CostCard costs={costs} roofline={roofline} choices={choices} size={machine.pair.target.size} />}
        <div class="column-of-cards">
          <PairCard pair={machine.pair} context={machine.context} />
          <DevicesCard machine={machine} />
        </div>
        <div class="column-of-cards">
          <MemoryCard machine={machine} />
          {choices && <ChoicesCard choices={choices} phases={machine.phases} costs={costs} />}
        </div>
      </div>
    </>
  );
}

function SwitchedOff({ what }: { what: string }) {
  return <p class="state">The server was started with --no-{what}: it does not tell them.</p>;
}

function Unloaded({ model, status, computer }: { model: string; status: string; computer: Computer }) {
  return (
    <div class="welcome">
      <h1>{model || "No model"}</h1>
      {model && (
        <p>{status === "loading" ? "It is being loaded." : "It is not loaded: the first question to it loads it."}</p>
      )}
      <p>
        {computer.cpu}, {computer.cores} cores,{" "}
        {bytes(computer.memory_available)} of {bytes(computer.memory_total)} free
      </p>
    </div>
  );
}
