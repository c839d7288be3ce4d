// Counts by name, the most frequent first, with their share of all.

import { percent, whole } from "../machine/words";

export function Bars({ label, counts }: { label: string; counts: [string, number][] }) {
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  return (
    <table class="bars" aria-label={label}>
      <tbody>
        {counts.map(([name, count]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="bar">
              <svg width="100%" height="10" aria-hidden="true" class="plot-1">
                <rect class="area" width={`${(100 * count) / all}%`} height="10" rx="2" />
              </svg>
            </td>
            <td title={whole(count)}>{percent(count / all)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
