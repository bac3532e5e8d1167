/** Samples of one quantity, in milliseconds, and what is said of them. */

export interface Figures {
  readonly count: number;
  readonly min: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** The smallest sample below which at least `percent` of a hundred lie (nearest rank). */
export function percentile(samples: readonly number[], percent: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  const rank = Math.max(1, Math.ceil((percent / 100) * sorted.length));
  const value = sorted[rank - 1];
  if (value === undefined) throw new Error('no samples');
  return value;
}

export function figuresOf(samples: readonly number[]): Figures {
  return {
    count: samples.length,
    min: percentile(samples, 0),
    p50: percentile(samples, 50),
    p99: percentile(samples, 99),
    max: percentile(samples, 100),
  };
}

/** One line of a table: a name and the figures, in milliseconds. */
export function formatFigures(name: string, { count, min, p50, p99, max }: Figures): string {
  const cells = [min, p50, p99, max].map((ms) => ms.toFixed(1).padStart(9));
  return `${name.padEnd(44)}${cells.join('')}   n=${count}`;
}

export const figuresHeader = `${''.padEnd(44)}${['min', 'p50', 'p99', 'max'].map((cell) => cell.padStart(9)).join('')}`;

export const rounded = (value: number, digits = 3): number => Number(value.toFixed(digits));
