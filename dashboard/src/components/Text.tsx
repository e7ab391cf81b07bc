/** Text of anybody, shown so that nothing in it is invisible or taken for something of ours. */

import { messageIdPieces, pieces, printable, type MessageIdFields, type Piece } from "../lib/text";

function Pieces({ pieces: shown }: { pieces: Piece[] }) {
  return shown.map((piece, index) =>
    piece.escaped ? (
      <span key={index} className="escape">
        {piece.text}
      </span>
    ) : (
      piece.text
    ),
  );
}

export function MessageId({ of, whole = false }: { of: MessageIdFields; whole?: boolean }) {
  const shown = messageIdPieces(of);
  if (shown === null) return <span className="faint">unknown</span>;
  const text = shown.map((piece) => piece.text).join("");
  return (
    <bdi className={whole ? "mono wrap" : "mono cut"} title={whole ? undefined : text}>
      {shown.length === 0 ? <span className="faint">empty</span> : <Pieces pieces={shown} />}
      {of.message_id === null && <span className="tag">bytes</span>}
    </bdi>
  );
}

export function Reason({ text, whole = false }: { text: string; whole?: boolean }) {
  if (text === "") return <span className="faint">none given</span>;
  return (
    <bdi className={whole ? "wrap" : "cut"} title={whole ? undefined : printable(text)}>
      <Pieces pieces={pieces(text)} />
    </bdi>
  );
}
