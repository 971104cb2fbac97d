/** A table that scrolls by itself when it is wider than the page, and says what it is. */
import type { ReactNode } from "react";

interface Props {
  readonly label: string;
  readonly head: readonly { readonly key: string; readonly title: ReactNode; readonly numeric?: boolean }[];
  readonly children: ReactNode;
}

export function Table({ label, head, children }: Props) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {head.map(({ key, title, numeric }) => (
              <th key={key} scope="col" className={numeric ? "numeric" : ""}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
