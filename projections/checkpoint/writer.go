package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"stele.dev/stele/eventlog"
)

// Sink takes the sections and records of a checkpoint, in their order: a [Writer], or the function of [HashOf].
type Sink interface {
	// Begin begins a section. version is that of the code whose fold the records are.
	Begin(name string, version uint32) error
	// Put adds a record to the section. The bytes may be changed afterwards.
	Put(record []byte) error
	// Of says of what kind the records are that follow in the section, so that those are sealed whose kind is. At first they
	// are of none.
	Of(kind eventlog.Kind) error
}

// Writer writes a checkpoint as a stream. It is for one goroutine.
type Writer struct {
	to         io.Writer
	fold       *fold
	err        error // the first one; nothing is written after it
	records    uint32
	plain      []byte
	compressed []byte
	keys       eventlog.Keys // nil for none
	of         eventlog.Kind // of the records in plain
	sealed     bool          // they are sealed
	// flushed is called after each block; see Folder.Write.
	flushed func() error
}

func newWriter(to io.Writer, keys eventlog.Keys, flushed func() error) *Writer {
	w := &Writer{to: to, fold: newFold(), keys: keys, flushed: flushed}
	_, w.err = io.WriteString(to, magic)
	return w
}

// Begin implements [Sink].
func (w *Writer) Begin(name string, version uint32) error {
	if w.flush(); w.err != nil {
		return w.err
	}
	w.fold.begin(name, version)
	w.of, w.sealed = eventlog.Kind{}, false
	w.block(blockSection, 0, append(protowire.AppendVarint(nil, uint64(version)), name...))
	return w.err
}

// Of implements [Sink].
func (w *Writer) Of(kind eventlog.Kind) error {
	if w.of == kind || w.keys == nil {
		return w.err
	}
	sealed := w.keys.Seals(kind)
	if sealed || w.sealed {
		w.flush()
	}
	w.of, w.sealed = kind, sealed
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
	if w.sealed {
		w.blockSealed()
	} else {
		w.block(blockRecords, w.records, w.plain)
	}
	w.plain, w.records = w.plain[:0], 0
}

func (w *Writer) block(kind byte, records uint32, plain []byte) {
	w.compressed = encoder.EncodeAll(plain, w.compressed[:0])
	w.write(header{kind: kind, records: records, plain: uint32(len(plain))}, w.compressed)
}

// blockSealed writes the records that were gathered as a block that only the keys open.
func (w *Writer) blockSealed() {
	w.compressed = encoder.EncodeAll(w.plain, w.compressed[:0])
	id, sealed, err := w.keys.Seal(context.Background(), w.of, w.compressed)
	if err != nil {
		w.err = fmt.Errorf("checkpoint: encrypt records: %w", err)
		return
	}
	content := protowire.AppendString(nil, w.of.Group)
	content = protowire.AppendString(content, w.of.Resource)
	content = protowire.AppendVarint(content, protowire.EncodeBool(w.of.Sensitive))
	content = protowire.AppendString(content, id)
	w.write(header{kind: blockSealed, records: w.records, plain: uint32(len(w.plain))}, append(content, sealed...))
}

// write writes a block.
func (w *Writer) write(h header, content []byte) {
	h.compressed = uint32(len(content))
	if _, w.err = w.to.Write(h.encode(content)); w.err != nil {
		return
	}
	if _, w.err = w.to.Write(content); w.err == nil && w.flushed != nil {
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

func (*hasher) Of(eventlog.Kind) error { return nil }

func (h *hasher) Put(record []byte) error {
	h.fold.record(sha256.Sum256(record), len(record))
	return nil
}
