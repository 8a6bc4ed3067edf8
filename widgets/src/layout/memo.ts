/** Results by keys that are rows of numbers. A key is written once and compared only where its hash is known. */
export class Memo<T> {
  readonly #known = new Map<number, { key: Float64Array; value: T }[]>();
  #key = new Float64Array(256);
  #length = 0;

  start(...numbers: number[]): void {
    this.#length = 0;
    this.add(numbers);
  }

  add(...parts: ArrayLike<number>[]): void {
    for (const part of parts) {
      const end = this.#length + part.length;
      if (end > this.#key.length) {
        const longer = new Float64Array(2 * end);
        longer.set(this.#key);
        this.#key = longer;
      }
      this.#key.set(part, this.#length);
      this.#length = end;
    }
  }

  get(make: () => T): T {
    const key = this.#key.subarray(0, this.#length);
    let hash = 0;
    // Sizes come in halves and offsets in fractions: their bits differ from the 8th part on.
    for (let k = 0; k < key.length; k++) hash = (Math.imul(hash, 31) + key[k]! * 8) | 0;
    const list = this.#known.get(hash) ?? [];
    const found = list.find(
      (one) => one.key.length === key.length && one.key.every((at, k) => at === key[k]),
    );
    if (found) return found.value;
    const own = key.slice();
    const value = make();
    list.push({ key: own, value });
    this.#known.set(hash, list);
    return value;
  }
}
