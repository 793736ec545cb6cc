package filelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"stele.dev/stele/limits/durable"
)

// markFile has the revision up to which batches are removed.
const markFile = "trimmed"

// Trim implements [eventlog.Backend]. The space of a file is freed when all of its batches are removed.
func (b *Backend) Trim(_ context.Context, upto uint64) error {
	b.appending.Lock()
	defer b.appending.Unlock()
	if err := b.open(); err != nil {
		return err
	}
	if b.o.ReadOnly {
		return ErrReadOnly
	}
	b.mu.Lock()
	mark, was := min(upto, max(b.newest, 1)-1), b.mark
	b.mu.Unlock()
	if mark > was {
		if err := writeMark(b.dir, mark); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.mark = max(mark, was)
	b.mu.Unlock()
	if err := b.removeTrimmed(); err != nil {
		return err // the next start removes them
	}
	b.countFreed()
	return nil
}

// removeTrimmed removes the files of which all batches are removed, except for the first and the newest file.
func (b *Backend) removeTrimmed() error {
	b.mu.Lock()
	var gone []*file
	for len(b.files) > 2 && b.files[2].first <= b.mark+1 {
		gone = append(gone, b.files[1])
		b.files = append(b.files[:1:1], b.files[2:]...)
	}
	b.mu.Unlock()
	for _, f := range gone {
		if b.o.ReadOnly {
			continue
		}
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// countFreed counts the bytes of removed batches in files that are not removed.
func (b *Backend) countFreed() {
	v := b.view()
	freed := int64(0)
	if len(v.files) > 1 && v.files[1].first <= v.mark {
		all := v.last
		if len(v.files) > 2 {
			var err error
			if all, err = b.index(v.files[1]); err != nil {
				return // readers of the file report it
			}
		}
		for _, r := range all[:searchAfter(all, v.mark)] {
			freed += r.size
		}
	}
	b.mu.Lock()
	b.freed = freed
	b.mu.Unlock()
}

func readMark(dir string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	mark, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, &DamagedError{filepath.Join(dir, markFile), 0, "it has no revision"}
	}
	return mark, nil
}

func writeMark(dir string, mark uint64) error {
	name := filepath.Join(dir, markFile)
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d\n", mark)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(name+".new", name), durable.SyncFolder(dir))
}
