// The pair: target and what drafts for it, and which of the target's layers a drafter reads.

import type { Machine, MachineDrafter, MachineModel } from "../../server/answers";
import { useWidth } from "../../charts/width";
import { bytes, parameters, whole } from "../../machine/words";
import { Card, Values } from "./card";

export function PairCard({ pair, context }: Pick<Machine, "pair" | "context">) {
  const { target, drafter } = pair;
  return (
    <Card id="pair" title="Models" aside={aside(drafter)}>
      <div class="models">
        <div>
          <h3>{target.name}</h3>
          <Values values={[["role", "target"], ...common(target), ["context", held(context)]]} />
        </div>
        {drafter && (
          <div>
            <h3>{drafter.name}</h3>
            <Values values={[["role", role(drafter)], ...common(drafter), ...own(drafter)]} />
          </div>
        )}
      </div>
      {drafter && drafter.target_layers.length > 0 && target.n_layer !== undefined && (
        <Taps layers={target.n_layer} tapped={drafter.target_layers} />
      )}
      {drafter?.kind === "mtp" && (
        <p class="note">MTP layers read the target’s last hidden state, and take a pass for each token that they draft.</p>
      )}
      {pair.no_tree && <p class="note">Drafts are chains: {pair.no_tree}.</p>}
      {drafter?.no_draft && <p class="error">It cannot draft: {drafter.no_draft}.</p>}
      <p class="note">
        {pair.not_bit_exact
          ? `Drafted text is the target’s; in its last bits it may depend on the pass: ${pair.not_bit_exact}.`
          : "Drafted text is the target’s own, bit for bit."}
      </p>
    </Card>
  );
}

function common(model: MachineModel): [string, string][] {
  const { arch, ftype, n_params, size, n_layer, n_embd } = model;
  const values: [string, string][] = [["architecture", arch]];
  if (ftype) values.push(["weights", `${ftype}, ${bytes(size)}`]);
  values.push(["parameters", parameters(n_params)]);
  if (n_layer !== undefined) values.push(["layers", `${n_layer}${n_embd ? ` of width ${whole(n_embd)}` : ""}`]);
  return values;
}

function aside(drafter: MachineDrafter | null): string {
  if (!drafter) return "without a drafter";
  return drafter.kind === "mtp" ? "target and MTP layers" : "target and drafter";
}

function role({ kind }: MachineDrafter): string {
  return kind === "mtp" ? "next-token (MTP) layers" : `drafter (${kind})`;
}

function own({ kind, block_size, top_k, lattice, draft_ctx }: MachineDrafter): [string, string][] {
  const values: [string, string][] = [];
  if (block_size) values.push(kind === "mtp" ? ["draft", `at most ${block_size - 1} tokens`] : ["block", `${block_size} tokens`]);
  if (top_k) values.push(["candidates", `${top_k} a place${lattice ? ", scored in pairs" : ""}`]);
  if (draft_ctx) values.push(["looks back", `${whole(draft_ctx)} tokens`]);
  return values;
}

function held({ n_ctx, n_ctx_slot, shared }: Machine["context"]): string {
  const most = n_ctx_slot < n_ctx ? `, at most ${whole(n_ctx_slot)} a slot` : "";
  return `${whole(n_ctx)} tokens${shared ? ", shared" : ""}${most}`;
}

const HEIGHT = 16;
const GAP = 2;

function Taps({ layers, tapped }: { layers: number; tapped: number[] }) {
  const [place, width] = useWidth<HTMLDivElement>();
  const step = width / layers;
  const listed = tapped.join(", ");
  return (
    <figure class="taps">
      <figcaption>
        Layers of the target; the drafter reads what goes into{" "}
        <span class="plot-2 name">{tapped.length} of them</span> ({listed})
      </figcaption>
      <div ref={place}>
        {width > 0 && (
          <svg width={width} height={HEIGHT} role="img" aria-label={`layers ${listed} of ${layers}`}>
            {Array.from({ length: layers }, (_, layer) => (
              <g key={layer} class={tapped.includes(layer) ? "plot-2" : "plot-none"}>
                <rect class="area" x={layer * step} width={Math.max(step - GAP, 1)} height={HEIGHT} rx="2">
                  <title>{`layer ${layer}`}</title>
                </rect>
              </g>
            ))}
          </svg>
        )}
      </div>
    </figure>
  );
}
