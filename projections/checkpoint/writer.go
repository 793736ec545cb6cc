package checkpoint

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Sink takes the sections and records of a checkpoint, in their order: a [Writer], or the function of [HashOf].
type Sink interface {
	// Begin begins a section. version is that of the code whose fold the records are.
	Begin(name string, version uint32) error
	// Put adds a record to the section. The bytes may be changed afterwards.
	Put(record []byte) error
}

// Writer writes a checkpoint as a stream. It is for one goroutine.
type Writer struct {
	to         io.Writer
	fold       *fold
	err        error // the first one; nothing is written after it
	records    uint32
	plain      []byte
	compressed []byte
	// flushed is called after each block; see Folder.Write.
	flushed func() error
}

func newWriter(to io.Writer, flushed func() error) *Writer {
	w := &Writer{to: to, fold: newFold(), flushed: flushed}
	_, w.err = io.WriteString(to, magic)
	return w
}

// Begin implements [Sink].
func (w *Writer) Begin(name string, version uint32) error {
	if w.flush(); w.err != nil {
		return w.err
	}
	w.fold.begin(name, version)
	w.block(blockSection, 0, append(protowire.AppendVarint(nil, uint64(version)), name...))
	return w.err
}

// Put implements [Sink].
func (w *Writer) Put(record []byte) error {
	switch {
	case w.err != nil:
		return w.err
	case !w.fold.opened:
		return errors.New("checkpoint: a record without a section")
	case len(record) > maxBlock-16:
		return fmt.Errorf("checkpoint: a record of %d bytes is too large", len(record))
	}
	if len(w.plain)+len(record) > blockSize {
		w.flush()
	}
	w.fold.record(sha256.Sum256(record), len(record))
	w.plain = protowire.AppendBytes(w.plain, record)
	w.records++
	return w.err
}

// flush writes the records that were gathered as a block.
func (w *Writer) flush() {
	if w.records == 0 || w.err != nil {
		return
	}
	w.block(blockRecords, w.records, w.plain)
	w.plain, w.records = w.plain[:0], 0
}

func (w *Writer) block(kind byte, records uint32, plain []byte) {
	w.compressed = encoder.EncodeAll(plain, w.compressed[:0])
	h := header{kind: kind, records: records, plain: uint32(len(plain)), compressed: uint32(len(w.compressed))}
	if _, w.err = w.to.Write(h.encode(w.compressed)); w.err != nil {
		return
	}
	if _, w.err = w.to.Write(w.compressed); w.err == nil && w.flushed != nil {
		w.err = w.flushed()
	}
}

// finish writes the footer.
func (w *Writer) finish() (Info, error) {
	if w.flush(); w.err != nil {
		return Info{}, w.err
	}
	info := w.fold.finish()
	w.block(blockFooter, 0, info.encode())
	return info, w.err
}

// HashOf returns what a checkpoint of the sections and records that save puts would have as its [Info].
func HashOf(save func(Sink) error) (Info, error) {
	h := &hasher{newFold()}
	if err := save(h); err != nil {
		return Info{}, err
	}
	return h.fold.finish(), nil
}

type hasher struct{ fold *fold }

func (h *hasher) Begin(name string, version uint32) error {
	h.fold.begin(name, version)
	return nil
}

func (h *hasher) Put(record []byte) error {
	h.fold.record(sha256.Sum256(record), len(record))
	return nil
}
