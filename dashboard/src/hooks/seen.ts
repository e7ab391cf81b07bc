/** Whether an element has come into view: what costs a request is read from then on. */

import { useEffect, useRef, useState, type RefObject } from "react";

export function useSeen<T extends Element>(): [RefObject<T | null>, boolean] {
  const element = useRef<T>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (element.current === null) return;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((one) => one.isIntersecting)) setSeen(true);
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, seen];
}
