import { useEffect, useState } from "preact/hooks";

/** True once something has been so for a while. */
export function useLater(on: boolean, delay: number): boolean {
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (!on) return setLate(false);
    const timer = setTimeout(() => setLate(true), delay);
    return () => clearTimeout(timer);
  }, [on]);
  return on && late;
}
