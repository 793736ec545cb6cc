package checkpoint

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"stele.dev/stele/eventlog"
)

// Reader reads a checkpoint as a stream. It is for one goroutine. Errors for which errors.Is reports [ErrDamaged] are
// those of the file's content.
type Reader struct {
	file io.ReadCloser
	from *bufio.Reader
	fold *fold
	next *block // read and not used yet
	info Info
	done bool
	err  error
	keys eventlog.Keys // nil for none
}

// block is a block whose checksum has been checked unless it has records, which is done in parallel.
type block struct {
	header
	head    [headerSize]byte
	content []byte // compressed, and perhaps sealed
	keys    eventlog.Keys
}

// hasRecords reports whether the block has records.
func (b *block) hasRecords() bool { return b.kind == blockRecords || b.kind == blockSealed }

// newReader reads the magic number. The reader closes the file.
func newReader(file io.ReadCloser, keys eventlog.Keys) (*Reader, error) {
	r := &Reader{file: file, keys: keys, from: bufio.NewReaderSize(file, 1<<20), fold: newFold()}
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(r.from, begin); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.Join(err, file.Close())
	}
	switch n := len(magic) - 1; {
	case string(begin[:n]) != magic[:n]:
		return nil, errors.Join(damaged("the file does not begin as a checkpoint does"), file.Close())
	case begin[n] != magic[n]:
		return nil, errors.Join(fmt.Errorf("the checkpoint has format %d; this version knows %d", begin[n], magic[n]), file.Close())
	}
	return r, nil
}

// Section goes to the next section, which must have this name and version. After an error nothing more can be read.
func (r *Reader) Section(name string, version uint32) error {
	b, err := r.peek()
	if err != nil {
		return err
	}
	if b.kind != blockSection {
		return r.fail(damaged("section %q is missing", name))
	}
	r.next = nil
	plain, err := b.decode()
	if err != nil {
		return r.fail(err)
	}
	v, n := protowire.ConsumeVarint(plain)
	if n < 0 || v > 1<<32-1 {
		return r.fail(damaged("a section has no version"))
	}
	if is := string(plain[n:]); is != name {
		return r.fail(fmt.Errorf("the checkpoint has %q where this version expects %q", is, name))
	}
	if uint32(v) != version {
		return r.fail(fmt.Errorf("%s was made by version %d of its code; this program has version %d", name, v, version))
	}
	r.fold.begin(name, version)
	return nil
}

// Info reads the footer and returns what it says. All sections must have been read.
func (r *Reader) Info() (Info, error) {
	b, err := r.peek()
	if err != nil || r.done {
		return r.info, err
	}
	if b.kind != blockFooter {
		return Info{}, r.fail(errors.New("the checkpoint has more in it than this version reads"))
	}
	plain, err := b.decode()
	if err != nil {
		return Info{}, r.fail(err)
	}
	info := r.fold.finish()
	if string(plain) != string(info.encode()) {
		return Info{}, r.fail(damaged("the footer does not agree with the content"))
	}
	if _, err := r.from.ReadByte(); !errors.Is(err, io.EOF) {
		return Info{}, r.fail(damaged("the file goes on after the footer"))
	}
	r.info, r.done = info, true
	return info, nil
}

// Close closes the file. The error says so if not everything was read.
func (r *Reader) Close() error {
	err := r.file.Close()
	if r.err == nil && !r.done {
		r.err = errors.New("the checkpoint was not read to its end")
	}
	return errors.Join(r.err, err)
}

func (r *Reader) fail(err error) error {
	if r.err == nil {
		r.err = err
	}
	return err
}

// peek returns the next block.
func (r *Reader) peek() (*block, error) {
	if r.err != nil || r.done || r.next != nil {
		return r.next, r.err
	}
	b := &block{keys: r.keys}
	if err := r.fill(b.head[:]); err != nil {
		return nil, r.fail(err)
	}
	if b.header = decodeHeader(b.head[:]); b.plain > maxBlock || b.compressed > maxBlock {
		return nil, r.fail(damaged("a block says that it has %d bytes", b.plain))
	}
	b.content = make([]byte, b.compressed)
	if err := r.fill(b.content); err != nil {
		return nil, r.fail(err)
	}
	r.next = b
	return b, nil
}

func (r *Reader) fill(b []byte) error {
	_, err := io.ReadFull(r.from, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends before its footer")
	}
	return err
}

// decode checks a block and returns its content.
func (b *block) decode() ([]byte, error) {
	sum := crc32.Update(crc32.Checksum(b.head[:headerSize-4], castagnoli), castagnoli, b.content)
	if sum != binary.BigEndian.Uint32(b.head[headerSize-4:]) {
		return nil, damaged("a block has another checksum")
	}
	compressed := b.content
	if b.kind == blockSealed {
		var err error
		if compressed, err = b.open(); err != nil {
			return nil, err
		}
	}
	plain, err := decoder.DecodeAll(compressed, make([]byte, 0, b.plain))
	if err != nil || len(plain) != int(b.plain) {
		return nil, damaged("a block cannot be decompressed: %v", err)
	}
	return plain, nil
}

// open opens a sealed block. The error is a [*eventlog.KeyError] if it cannot be opened.
func (b *block) open() ([]byte, error) {
	var of eventlog.Kind
	rest := b.content
	part := func() string {
		value, n := protowire.ConsumeString(rest)
		if rest = rest[max(n, 0):]; n < 0 {
			rest = nil
		}
		return value
	}
	of.Group, of.Resource = part(), part()
	sensitive, n := protowire.ConsumeVarint(rest)
	if rest = rest[max(n, 0):]; n < 0 {
		rest = nil
	}
	of.Sensitive = protowire.DecodeBool(sensitive)
	id := part()
	if rest == nil {
		return nil, damaged("a sealed block has no key")
	}
	failed := &eventlog.KeyError{KeyID: id, Lasts: true}
	if b.keys == nil {
		failed.Err = eventlog.ErrNoKeys
		return nil, failed
	}
	plain, _, err := b.keys.Open(context.Background(), of, id, rest)
	if err != nil {
		failed.Err, failed.Lasts = err, !b.keys.Temporary(err)
		return nil, failed
	}
	return plain, nil
}

// parsed is what came of a block.
type parsed[T any] struct {
	values []T
	sums   []Hash
	sizes  []int
	err    error
}

// Records reads the records of the section at which the reader is. It calls parse for each record, on all processors
// and in no order, and take with the results, in the order of the records and by the calling goroutine. parse must copy
// what it keeps of a record. The first error, or the end of the context, ends it.
func Records[T any](ctx context.Context, r *Reader, parse func(record []byte) (T, error), take func(T) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workers := runtime.GOMAXPROCS(0)
	type job struct {
		block *block
		done  chan parsed[T]
	}
	jobs := make(chan job)
	order := make(chan job, 2*workers) // bounds the blocks in memory
	var group sync.WaitGroup
	defer group.Wait()
	for range workers {
		group.Go(func() {
			for j := range jobs {
				j.done <- parseBlock(j.block, parse)
			}
		})
	}
	var readErr error
	group.Go(func() {
		defer close(order)
		defer close(jobs)
		for {
			b, err := r.peek()
			if err != nil || !b.hasRecords() {
				readErr = err
				return
			}
			r.next = nil
			j := job{b, make(chan parsed[T], 1)}
			select {
			case order <- j:
			case <-ctx.Done():
				return
			}
			select {
			case jobs <- j:
			case <-ctx.Done():
				j.done <- parsed[T]{err: ctx.Err()}
				return
			}
		}
	})
	var err error
	for j := range order {
		p := <-j.done
		if err == nil {
			if err = takeBlock(r, p, take); err != nil {
				cancel()
			}
		}
	}
	// The goroutine that reads has ended: it has closed the channel.
	if err = errors.Join(err, readErr); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return r.fail(err)
	}
	return nil
}

func takeBlock[T any](r *Reader, p parsed[T], take func(T) error) error {
	if p.err != nil {
		return p.err
	}
	for i, v := range p.values {
		r.fold.record(p.sums[i], p.sizes[i])
		if err := take(v); err != nil {
			return err
		}
	}
	return nil
}

func parseBlock[T any](b *block, parse func([]byte) (T, error)) (p parsed[T]) {
	plain, err := b.decode()
	if err != nil {
		return parsed[T]{err: err}
	}
	n := min(int(b.records), len(plain))
	p = parsed[T]{values: make([]T, 0, n), sums: make([]Hash, 0, n), sizes: make([]int, 0, n)}
	for len(plain) > 0 {
		record, n := protowire.ConsumeBytes(plain)
		if n < 0 {
			return parsed[T]{err: damaged("a record is longer than its block")}
		}
		plain = plain[n:]
		v, err := parse(record)
		if err != nil {
			return parsed[T]{err: err}
		}
		p.values, p.sums, p.sizes = append(p.values, v), append(p.sums, sha256.Sum256(record)), append(p.sizes, len(record))
	}
	if len(p.values) != int(b.records) {
		return parsed[T]{err: damaged("a block has %d records, not %d", len(p.values), b.records)}
	}
	return p
}

// verify reads a checkpoint from its beginning to its end, whatever sections it has.
func (r *Reader) verify(ctx context.Context, pause func() error) (Info, error) {
	for {
		b, err := r.peek()
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && pause != nil {
			err = pause()
		}
		if err != nil {
			return Info{}, r.fail(err)
		}
		switch b.kind {
		case blockFooter:
			return r.Info()
		case blockSection:
			plain, err := b.decode()
			if err != nil {
				return Info{}, r.fail(err)
			}
			v, n := protowire.ConsumeVarint(plain)
			if n < 0 {
				return Info{}, r.fail(damaged("a section has no version"))
			}
			r.fold.begin(string(plain[n:]), uint32(v))
		case blockRecords, blockSealed:
			p := parseBlock(b, func([]byte) (struct{}, error) { return struct{}{}, nil })
			if err := takeBlock(r, p, func(struct{}) error { return nil }); err != nil {
				return Info{}, r.fail(err)
			}
		default:
			return Info{}, r.fail(damaged("a block is of kind %d", b.kind))
		}
		r.next = nil
	}
}
