// The numbers of a plot as a table, for people who cannot see it or want to copy them.

interface Numbers {
  head: string[];
  rows: (string | number)[][];
}

/** `of`: what the numbers are of. */
export function SeriesTable({ of, ...numbers }: Numbers & { of: string }) {
  return (
    <details class="series">
      <summary>As a table</summary>
      <Table label={`Numbers of ${of}`} {...numbers} />
    </details>
  );
}

export function Table({ label, head, rows }: Numbers & { label: string }) {
  return (
    <div class="table" tabIndex={0} role="region" aria-label={label}>
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
  );
}
