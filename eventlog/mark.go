package eventlog

import (
	"fmt"
	"strings"
)

// Mark is what a store has in place of a head while its log is not to be used: since the log has moved elsewhere, or as
// long as a copy of it is not complete. No append succeeds, because writers compare the head, and every program that
// reads the mark stops.
type Mark struct {
	// Kind is Moved or Copying.
	Kind MarkKind
	// At is the head of the log that was moved, or of the one that is copied.
	At Head
	// Place says where the log has moved to, or is copied from.
	Place string
	// Move identifies the move: the marks of both of its stores have the same. It has no zero byte, and may be empty.
	Move string
}

// MarkKind says what a [Mark] is about.
type MarkKind byte

// The kinds of marks.
const (
	Moved   MarkKind = 'm' // the log has moved to another store
	Copying MarkKind = 'c' // a copy of the log is not complete
)

// markFormat is the first byte of a mark. As a format level it is one that no version reads.
const markFormat = 255

// Encode returns the mark as the value of the head key: 255, the kind, the head as [Head.Encode] returns it, the place,
// and behind a zero byte the move, if it has one.
func (m *Mark) Encode() []byte {
	b := append([]byte{markFormat, byte(m.Kind)}, m.At.Encode()...)
	b = append(b, m.Place...)
	if m.Move != "" {
		b = append(append(b, 0), m.Move...)
	}
	return b
}

// DecodeMark decodes what [Mark.Encode] returns; ok is false for all other values.
func DecodeMark(b []byte) (m *Mark, ok bool) {
	if len(b) < 2+headSize || b[0] != markFormat || b[1] != byte(Moved) && b[1] != byte(Copying) {
		return nil, false
	}
	at, err := DecodeHead(b[2 : 2+headSize])
	place, move, _ := strings.Cut(string(b[2+headSize:]), "\x00")
	return &Mark{Kind: MarkKind(b[1]), At: at, Place: place, Move: move}, err == nil
}

// MarkedError reports that the log in a store is not to be used.
type MarkedError struct{ Mark *Mark }

func (e *MarkedError) Error() string {
	if e.Mark.Kind == Moved {
		return fmt.Sprintf("log %s has moved to %s, and is not to be used here any more", e.Mark.At.Log, e.Mark.Place)
	}
	return fmt.Sprintf("the copy of log %s from %s is not complete; repeat the same `stele store move`, which continues", e.Mark.At.Log, e.Mark.Place)
}
