/** Gives each distinct key a number, in the order of first sight. */
export class Numbering<K> {
  readonly #numbers = new Map<K, number>();

  of(key: K): number {
    const number = this.#numbers.get(key);
    if (number !== undefined) return number;
    this.#numbers.set(key, this.#numbers.size);
    return this.#numbers.size - 1;
  }
}
