// The tree that was just verified, by depth: what was kept on top, what was refused below it, struck through.

import { useMemo } from "preact/hooks";
import { guessed, ORIGINS, type Pass, type Tree } from "../../drafts/pass";
import type { Passes } from "../../drafts/passes";
import { columnsOf } from "../../drafts/tree_layout";
import { visible } from "../../drafts/words";

const ROWS = 4;
const TOKEN_LENGTH = 12;

export function Guess({ passes, count }: { passes: Passes; count: number }) {
  const pass = passes.list[count - 1];
  return (
    <div class="guess" aria-hidden="true">
      {pass?.tree && pass.nodes > 1 ? (
        <Columns pass={pass} tree={pass.tree} key={pass.number} />
      ) : (
        <p>{!!pass?.number && `pass ${pass.number}: plain, nothing was guessed`}</p>
      )}
    </div>
  );
}

function Columns({ pass, tree }: { pass: Pass; tree: Tree }) {
  const columns = useMemo(() => columnsOf(tree), [tree]);
  const accepted = new Set(tree.path);
  return (
    <>
      <p>
        pass {pass.number}: guessed {guessed(pass)}, <b>kept {pass.accepted}</b>
      </p>
      <div class="guess-columns">
        <div class="guess-column"><span class="anchor">{visible(tree.texts[0]!, TOKEN_LENGTH)}</span></div>
        {columns.map((nodes, index) => (
          <div class="guess-column" key={index}>
            {index === pass.accepted && <Bonus pass={pass} />}
            {nodes.slice(0, ROWS - Number(index === pass.accepted)).map((node) => (
              <span key={node} class={`${ORIGINS[tree.origins[node]!]} ${accepted.has(node) ? "kept" : "refused"}`}>
                {visible(tree.texts[node]!, TOKEN_LENGTH)}
              </span>
            ))}
            {nodes.length > ROWS && <small>{nodes.length - ROWS} more</small>}
          </div>
        ))}
        {pass.accepted === columns.length && <div class="guess-column"><Bonus pass={pass} /></div>}
      </div>
    </>
  );
}

/** What the model said itself, where the walk left the tree. */
function Bonus({ pass }: { pass: Pass }) {
  const text = pass.texts[pass.accepted];
  return text === undefined ? null : <span class="bonus">{visible(text, TOKEN_LENGTH)}</span>;
}
