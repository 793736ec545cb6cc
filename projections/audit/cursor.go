package audit

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"stele.dev/stele/eventlog"
)

// cursor is the content of the cursor file, in JSON with a checksum on a line of its own: a position of
// the log, and the size and checksum of the file up to there. Mark is an earlier size of the file, with the
// checksum up to there, and Tail is the checksum of what follows it. Decisions is the position of the log of decisions.
// Begin is where the file begins, if that is not the beginning of the logs.
//
// Earlier versions wrote no mark, and still earlier ones neither the size nor the checksums.
type cursor struct {
	place
	Size      int64  `json:"size"`
	Sum       uint32 `json:"sum"`
	Mark      *mark  `json:"mark,omitempty"`
	Tail      uint32 `json:"tail,omitempty"`
	Decisions *place `json:"decisions,omitempty"`
	Begin     *begin `json:"begin,omitempty"`
}

// place is a position of a log.
type place struct {
	Log      string `json:"log"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
}

func placeOf(h eventlog.Head) place {
	return place{Log: h.Log.String(), Epoch: h.Epoch, Revision: h.Revision, Hash: h.Hash.String()}
}

// head returns the position. It reports whether the place has one.
func (p *place) head() (h eventlog.Head, ok bool) {
	h.Epoch, h.Revision = p.Epoch, p.Revision
	n, err := hex.Decode(h.Hash[:], []byte(p.Hash))
	m, err2 := hex.Decode(h.Log[:], []byte(p.Log))
	return h, err == nil && err2 == nil && n == len(h.Hash) && m == len(h.Log)
}

// begin is the content of the file of the beginning, in the form of the cursor: the positions of the logs at which the
// file begins. While the file is rotated, Renamed is the name that the former one gets.
type begin struct {
	Main      place  `json:"main"`
	Decisions *place `json:"decisions,omitempty"`
	Renamed   string `json:"renamed,omitempty"`
}

// mark is a size of the file and the checksum up to there.
type mark struct {
	Size int64  `json:"size"`
	Sum  uint32 `json:"sum"`
}

// ErrForeignCursor reports a cursor of another log.
var ErrForeignCursor = errors.New("audit: the cursor is of another log")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// heads are positions of the log of record and of the log of decisions.
type heads [2]eventlog.Head

const (
	mainLog = iota
	decisionLog
)

// position says how far the file has been written: positions of the logs, and the size and the checksum
// of the lines up to there. A start checks what follows the mark before it goes on, and the rest beside.
type position struct {
	heads heads
	size  int64
	sum   uint32
	mark  mark
	tail  uint32 // checksum of what follows the mark
	begin heads  // where the file begins
}

// add moves the position past lines. It moves the mark if more than markEvery bytes follow it.
func (p *position) add(lines []byte, markEvery int64) {
	if p.size-p.mark.Size >= markEvery {
		p.mark, p.tail = mark{p.size, p.sum}, 0
	}
	p.size, p.sum = p.size+int64(len(lines)), crc32.Update(p.sum, castagnoli, lines)
	p.tail = crc32.Update(p.tail, castagnoli, lines)
}

// errNoCursor says why the cursor cannot be used. The file is then compared with the log.
type errNoCursor string

func (e errNoCursor) Error() string { return string(e) }

// readSealed reads a file that writeSealed wrote into v. The error is an [errNoCursor] if there is none, or it is damaged;
// summed is false if it has no checksum.
func readSealed(file string, v any) (summed bool, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, errNoCursor("there is no cursor")
	}
	if err != nil {
		return false, err
	}
	text, sum, summed := bytes.Cut(data, []byte("\n"))
	if summed && string(sum) != checksum(text) || json.Unmarshal(text, v) != nil {
		return summed, errNoCursor("the cursor is damaged")
	}
	return summed, nil
}

// writeSealed replaces a file by v, in JSON, and its checksum.
func writeSealed(file string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(file, append(append(text, '\n'), checksum(text)...), 0o600)
}

// RemoveUnfinished removes what crashes have left of replacing a file by [WriteHead].
func RemoveUnfinished(file string) error {
	dir, name := filepath.Split(file)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		number, isTemporary := strings.CutPrefix(e.Name(), "."+name)
		if _, err := strconv.ParseUint(number, 10, 64); isTemporary && err == nil && e.Type().IsRegular() {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func checksum(b []byte) string { return fmt.Sprintf("%08x\n", crc32.Checksum(b, castagnoli)) }

// readCursor returns the position in the cursor file. The error is an [errNoCursor] if there is none. start has the
// beginnings of the logs.
func readCursor(file string, start heads) (position, error) {
	var c cursor
	summed, err := readSealed(file, &c)
	if err != nil {
		return position{}, err
	}
	if log := start[mainLog].Log; c.Log != log.String() {
		return position{}, fmt.Errorf("%w: %s says %s, this log is %s", ErrForeignCursor, file, c.Log, log)
	}
	if !summed {
		return position{}, errNoCursor("the cursor is of an earlier version")
	}
	p := position{heads: start, size: c.Size, sum: c.Sum, tail: c.Sum, begin: start}
	if c.Mark != nil {
		p.mark, p.tail = *c.Mark, c.Tail
	}
	var ok bool
	if p.heads[mainLog], ok = c.place.head(); !ok || p.mark.Size < 0 || p.mark.Size > p.size {
		return position{}, errNoCursor("the cursor is damaged")
	}
	p.heads.take(c.Decisions)
	if c.Begin != nil {
		p.begin = c.Begin.heads(start)
	}
	return p, nil
}

// take takes over the position of the log of decisions, if it is that of the same log: another one is new.
func (h *heads) take(p *place) {
	if p == nil {
		return
	}
	if at, ok := p.head(); ok && at.Log == h[decisionLog].Log {
		h[decisionLog] = at
	}
}

// heads returns the positions; those of start, as far as it has none.
func (b *begin) heads(start heads) heads {
	h := start
	if at, ok := b.Main.head(); ok && at.Log == start[mainLog].Log {
		h[mainLog] = at
	}
	h.take(b.Decisions)
	return h
}

func beginOf(h heads, renamed string) *begin {
	b := &begin{Main: placeOf(h[mainLog]), Renamed: renamed}
	if h[decisionLog] != (eventlog.Head{}) {
		at := placeOf(h[decisionLog])
		b.Decisions = &at
	}
	return b
}

func (p position) save(file string, start heads) error {
	c := cursor{place: placeOf(p.heads[mainLog]), Size: p.size, Sum: p.sum}
	if p.mark.Size > 0 {
		c.Mark, c.Tail = &p.mark, p.tail
	}
	if p.heads[decisionLog] != (eventlog.Head{}) {
		at := placeOf(p.heads[decisionLog])
		c.Decisions = &at
	}
	if p.begin != start {
		c.Begin = beginOf(p.begin, "")
	}
	return writeSealed(file, c)
}
