package audit

import (
	"errors"
	"io/fs"

	"github.com/tidwall/gjson"
	"stele.dev/stele/eventlog"
)

// ErrNoHead says that a file has no position of a log: it is damaged, or the position is that of another log.
var ErrNoHead = errors.New("audit: the file has no position of this log")

// ReadHead reads a position from a file that [WriteHead] has written. The error is [fs.ErrNotExist] if there is none.
func ReadHead(file string, log eventlog.ID) (eventlog.Head, error) {
	if !exists(file) {
		return eventlog.Head{}, fs.ErrNotExist
	}
	var p place
	summed, err := readSealed(file, &p)
	if errors.As(err, new(errNoCursor)) {
		return eventlog.Head{}, ErrNoHead
	}
	if err != nil {
		return eventlog.Head{}, err
	}
	if at, ok := p.head(); ok && summed && at.Log == log {
		return at, nil
	}
	return eventlog.Head{}, ErrNoHead
}

// WriteHead replaces a file by a position of a log, and its checksum.
func WriteHead(file string, at eventlog.Head) error { return writeSealed(file, placeOf(at)) }

// WithoutBodies returns a line without the bodies of the request and of the answer. It reports whether it had any.
func WithoutBodies(line []byte) (without []byte, cut bool) {
	without = line
	for _, name := range []string{"requestObject", "responseObject"} {
		if body := gjson.GetBytes(without, name); body.Exists() && body.Index > 0 {
			without, cut = cutField(without, name, body.Index, len(body.Raw)), true
		}
	}
	return without, cut
}
