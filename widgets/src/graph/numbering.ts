/** Gives each distinct key a number, in the order of first sight. */
export class Numbering<K> {
  readonly #seen = new Map<K, number>();

  of(key: K): number {
    const known = this.#seen.get(key);
    if (known !== undefined) return known;
    this.#seen.set(key, this.#seen.size);
    return this.#seen.size - 1;
  }
}
