package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/google/renameio/v2"
	"stele.dev/stele/eventlog"
)

// cursor is the content of the cursor file, in JSON with a checksum on a line of its own: a position of
// the log, and the size and checksum of the file up to there. Mark is an earlier size of the file, with the
// checksum up to there, and Tail is the checksum of what follows it. Earlier versions wrote no mark, and
// still earlier ones neither the size nor the checksums.
type cursor struct {
	Log      string `json:"log"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
	Size     int64  `json:"size"`
	Sum      uint32 `json:"sum"`
	Mark     *mark  `json:"mark,omitempty"`
	Tail     uint32 `json:"tail,omitempty"`
}

// mark is a size of the file and the checksum up to there.
type mark struct {
	Size int64  `json:"size"`
	Sum  uint32 `json:"sum"`
}

// ErrForeignCursor reports a cursor of another log.
var ErrForeignCursor = errors.New("audit: the cursor is of another log")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// position says how far the file has been written: a position of the log, and the size and the checksum
// of the lines up to there. A start checks what follows the mark before it goes on, and the rest beside.
type position struct {
	head eventlog.Head
	size int64
	sum  uint32
	mark mark
	tail uint32 // checksum of what follows the mark
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

// readCursor returns the position in the cursor file. The error is an [errNoCursor] if there is none.
func readCursor(file string, log eventlog.ID) (position, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return position{}, errNoCursor("there is no cursor")
	}
	if err != nil {
		return position{}, err
	}
	text, sum, summed := bytes.Cut(data, []byte("\n"))
	var c cursor
	if summed && string(sum) != checksum(text) || json.Unmarshal(text, &c) != nil {
		return position{}, errNoCursor("the cursor is damaged")
	}
	if c.Log != log.String() {
		return position{}, fmt.Errorf("%w: %s says %s, this log is %s", ErrForeignCursor, file, c.Log, log)
	}
	p := position{head: eventlog.Head{Log: log, Epoch: c.Epoch, Revision: c.Revision}, size: c.Size, sum: c.Sum, tail: c.Sum}
	if c.Mark != nil {
		p.mark, p.tail = *c.Mark, c.Tail
	}
	switch n, err := hex.Decode(p.head.Hash[:], []byte(c.Hash)); {
	case !summed:
		return position{}, errNoCursor("the cursor is of an earlier version")
	case err != nil || n != len(p.head.Hash) || p.mark.Size < 0 || p.mark.Size > p.size:
		return position{}, errNoCursor("the cursor is damaged")
	}
	return p, nil
}

func (p position) save(file string) error {
	c := cursor{Log: p.head.Log.String(), Epoch: p.head.Epoch, Revision: p.head.Revision, Hash: p.head.Hash.String(), Size: p.size, Sum: p.sum}
	if p.mark.Size > 0 {
		c.Mark, c.Tail = &p.mark, p.tail
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return renameio.WriteFile(file, append(append(text, '\n'), checksum(text)...), 0o600)
}

func checksum(b []byte) string { return fmt.Sprintf("%08x\n", crc32.Checksum(b, castagnoli)) }
