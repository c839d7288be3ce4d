// Devices: what computes, and the number of rows from which it uses its matrix kernel.

import { Table } from "../../charts/series_table";
import type { Machine } from "../../server/answers";
import { bytes } from "../../machine/words";
import { Card, Values } from "./card";

export function DevicesCard({ machine }: { machine: Machine }) {
  const { computer, devices } = machine;
  return (
    <Card id="devices" title="Devices">
      <Values
        values={[
          ["processor", `${computer.cpu}, ${computer.cores} cores, ${computer.logical_cores} threads`],
          ["computes with", threads(machine)],
          ["load", computer.load >= 0 ? `${computer.load.toFixed(1)} in the last minute` : "unknown"],
          ["system", `${computer.system}, Python ${computer.python}`],
          ...devices.map(({ name, type, description, memory_total: all, memory_free: free }): [string, string] => [
            name,
            `${description} (${type})${all ? `, ${bytes(free)} of ${bytes(all)} free` : ""}`,
          ]),
        ]}
      />
      <Kernels machine={machine} />
    </Card>
  );
}

function threads({ placement }: Machine): string {
  const { n_threads: count, n_gpu_layers: target, n_gpu_layers_draft: draft } = placement;
  const cores = count ? `${count} threads` : "a thread on each core";
  if (target === null) return cores;
  return `${cores}; on the GPU ${layers(target)} of the target, ${layers(draft ?? 0)} of the drafter`;
}

function layers(count: number): string {
  return count < 0 ? "all layers" : `${count} layers`;
}

function Kernels({ machine: { kernels } }: { machine: Machine }) {
  if (!kernels.length) {
    return <p class="note">No device here has two kernels to choose between: there is no threshold to tune.</p>;
  }
  const lines = kernels.map(({ device, type, rows, tuned }) => [
    `${device} ${type}`,
    `${rows} rows`,
    tuned ? "tuned here" : "the device’s own",
  ]);
  return <Table label="Thresholds" head={["weights", "matrix kernel from", "threshold"]} rows={lines} />;
}
