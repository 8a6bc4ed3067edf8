/** Results by keys that are rows of numbers. A key is written once and compared only where its hash is known. */
export class Memo<T> {
  readonly #entries = new Map<number, { key: Float64Array; value: T }[]>();
  #key = new Float64Array(256);
  #length = 0;

  start(...numbers: number[]): void {
    this.#length = 0;
    this.add(numbers);
  }

  push(number: number): void {
    if (this.#length === this.#key.length) this.#grow(this.#length + 1);
    this.#key[this.#length++] = number;
  }

  add(...parts: ArrayLike<number>[]): void {
    for (const part of parts) {
      const end = this.#length + part.length;
      if (end > this.#key.length) this.#grow(end);
      this.#key.set(part, this.#length);
      this.#length = end;
    }
  }

  get(make: () => T): T {
    const key = this.#key;
    const length = this.#length;
    let hash = 0;
    // Sizes come in halves and offsets in fractions: their bits differ from the 8th part on.
    for (let k = 0; k < length; k++) hash = (Math.imul(hash, 31) + key[k]! * 8) | 0;
    const list = this.#entries.get(hash) ?? [];
    for (const one of list) if (same(one.key, key, length)) return one.value;
    const own = key.slice(0, length);
    const value = make();
    list.push({ key: own, value });
    this.#entries.set(hash, list);
    return value;
  }

  #grow(length: number): void {
    const longer = new Float64Array(2 * length);
    longer.set(this.#key);
    this.#key = longer;
  }
}

function same(stored: Float64Array, key: Float64Array, length: number): boolean {
  if (stored.length !== length) return false;
  for (let k = 0; k < length; k++) if (stored[k] !== key[k]) return false;
  return true;
}
