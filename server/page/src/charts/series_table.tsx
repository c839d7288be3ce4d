// The numbers of a plot as a table, for people who cannot see it or want to copy them.

interface Props {
  /** What the numbers are of. */
  of: string;
  head: string[];
  rows: (string | number)[][];
}

export function SeriesTable({ of, head, rows }: Props) {
  return (
    <details class="series">
      <summary>As a table</summary>
      <div class="table" tabIndex={0} role="region" aria-label={`Numbers of ${of}`}>
        <table>
          <thead>
            <tr>{head.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row[0]}>{row.map((value, index) => <td key={head[index]}>{value}</td>)}</tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
