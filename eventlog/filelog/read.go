package filelog

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sort"

	"stele.dev/stele/eventlog"
)

const (
	// atOnce and bytesAtOnce bound what one Read returns.
	atOnce      = 256
	bytesAtOnce = 4 << 20
	// keptIndexes is of how many older files the places of the records are kept in memory.
	keptIndexes = 4
)

// Read implements [eventlog.Backend].
func (b *Backend) Read(_ context.Context, from uint64) (eventlog.Answer, error) {
	if err := b.open(); err != nil {
		return eventlog.Answer{}, err
	}
	return b.read(from)
}

// ReadBack implements [eventlog.Backend].
func (b *Backend) ReadBack(_ context.Context, from uint64, max int) ([]eventlog.Stored, error) {
	for {
		if err := b.open(); err != nil {
			return nil, err
		}
		v := b.view()
		var back []eventlog.Stored
		err := v.visitBack(from, func(f *file, records []record) error {
			records = records[:searchAfter(records, from)]
			n := min(len(records), max-len(back))
			found, err := v.values(f, records[len(records)-n:])
			slices.Reverse(found)
			back = append(back, found...)
			return stopIf(err, len(back) >= max)
		})
		if !errors.Is(err, fs.ErrNotExist) {
			return back, err
		}
	}
}

// errStop ends a walk through the files.
var errStop = errors.New("stop")

func stopIf(err error, stop bool) error {
	if err == nil && stop {
		return errStop
	}
	return err
}

// read returns the head and the batches from a revision on.
func (b *Backend) read(from uint64) (eventlog.Answer, error) {
	for {
		v := b.view()
		a := eventlog.Answer{Head: v.head}
		size := int64(0)
		err := v.forward(from, func(f *file, records []record) error {
			records = records[sort.Search(len(records), func(i int) bool { return records[i].first >= from }):]
			n := 0
			for n < len(records) && len(a.Batches)+n < atOnce && (size == 0 || size+records[n].size <= bytesAtOnce) {
				size += records[n].size
				n++
			}
			found, err := v.values(f, records[:n])
			a.Batches = append(a.Batches, found...)
			return stopIf(err, n < len(records) || v.opening)
		})
		if !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
	} // a file was removed meanwhile
}

// view is the log at one moment.
type view struct {
	b      *Backend
	files  []*file
	last   []record // of the newest file
	head   []byte
	newest uint64
	mark   uint64
	// opening is set while the log is opened, which needs the first batch only: the next file may be large, or damaged.
	opening bool
}

func (b *Backend) view() view {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := view{b: b, files: slices.Clone(b.files), head: b.head, newest: b.newest, mark: b.mark, opening: b.opening}
	if n := len(v.files); n > 0 {
		v.last = v.files[n-1].records
	}
	return v
}

// forward visits the records of the files that have batches from a revision on, and perhaps earlier ones.
func (v *view) forward(from uint64, visit func(*file, []record) error) (err error) {
	more := true
	for i := max(0, fileAfter(v.files, from)-1); more && i < len(v.files); i++ {
		more, err = v.visit(i, visit)
	}
	return err
}

// visitBack visits the records of the files that have batches up to a revision, the newest file first.
func (v *view) visitBack(from uint64, visit func(*file, []record) error) (err error) {
	more := true
	for i := fileAfter(v.files, from) - 1; more && i >= 0; i-- {
		more, err = v.visit(i, visit)
	}
	return err
}

// visit visits the records of a file. It returns false if other files need not be visited.
func (v *view) visit(i int, visit func(*file, []record) error) (more bool, err error) {
	records, err := v.records(i)
	if err == nil && len(records) > 0 {
		err = visit(v.files[i], records)
	}
	if err == errStop {
		return false, nil
	}
	return err == nil, err
}

// records returns the records of a file, without those that are trimmed.
func (v *view) records(i int) ([]record, error) {
	f, all := v.files[i], v.last
	if i < len(v.files)-1 {
		var err error
		if all, err = v.b.index(f); err != nil {
			return nil, err
		}
	}
	if i == 0 {
		return all, nil // the first batch
	}
	return all[searchAfter(all, v.mark):], nil
}

// index returns the records of an older file, which it reads if they are not known.
func (b *Backend) index(f *file) ([]record, error) {
	b.mu.Lock()
	records, size := f.records, f.size
	b.mu.Unlock()
	if records != nil {
		return records, nil
	}
	s, err := scanWhole(f.name, size)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f.records = s.records
	known := 0
	for i := len(b.files) - 2; i > 0; i-- {
		if other := b.files[i]; other.records != nil && other != f {
			if known++; known >= keptIndexes {
				other.records = nil
			}
		}
	}
	return s.records, nil
}

// scanWhole reads a file of which all records must be good.
func scanWhole(name string, size int64) (scanned, error) {
	s, err := scan(name)
	switch {
	case err != nil:
		return s, err
	case s.damage != nil:
		return s, s.damage
	case s.end != size:
		return s, &DamagedError{name, s.end, "no record begins here"}
	}
	return s, nil
}

// values reads the batches of records, which are of one file.
func (v *view) values(f *file, records []record) ([]eventlog.Stored, error) {
	if len(records) == 0 {
		return nil, nil
	}
	in, err := os.Open(f.name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	list := make([]eventlog.Stored, len(records))
	for i, r := range records {
		_, value, err := readRecord(in, f.name, r)
		if err != nil {
			return nil, err
		}
		list[i] = eventlog.Stored{First: r.first, Value: value}
	}
	return list, nil
}

// searchAfter returns the index of the first record after a revision.
func searchAfter(records []record, revision uint64) int {
	return sort.Search(len(records), func(i int) bool { return records[i].first > revision })
}
