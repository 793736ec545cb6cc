package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"stele.dev/stele/eventlog"
)

// compare reads the logs from where the file begins, and keeps the part of the file that matches them. It cuts off the rest,
// which is written anew afterwards. It sets the rest aside, unless that is the beginning of the next line.
func (w *Writer) compare(ctx context.Context, at heads, reason string) error {
	info, err := w.file.Stat()
	if err != nil {
		return err
	}
	recorded := at
	for which, log := range w.readers {
		if log != nil {
			if at[which], err = common(ctx, log, at[which], w.start[which]); err != nil {
				return err
			}
		}
	}
	if at != recorded {
		if err := writeSealed(w.beginFile(), beginOf(at, "")); err != nil {
			return err
		}
	}
	w.at = position{heads: at, begin: at}
	c := comparison{w: w, in: bufio.NewReaderSize(io.NewSectionReader(w.file, 0, info.Size()), 1<<20)}
	for which, log := range w.readers {
		if log != nil {
			c.streams = append(c.streams, &stream{which: which, log: log, head: at[which]})
		}
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	if err := c.cut(ctx, info.Size()); err != nil {
		return err
	}
	complete := true
	for _, s := range c.streams {
		next, err := s.nextLine(ctx, w)
		if err != nil {
			return err
		}
		complete = complete && next == nil
		if s.matched { // the rest of a batch
			for _, l := range s.lines {
				if err := w.append(l.text); err != nil {
					return err
				}
			}
			s.head = s.batches[0].Head()
		}
		w.at.heads[s.which] = s.head
	}
	if info.Size() > 0 && (!complete || w.at.size != info.Size()) { // not at the first start
		w.o.Logger.Warn("the audit log is completed from the log", "file", w.o.File, "reason", reason, "bytes", info.Size(), "same", w.at.size)
	}
	w.dirty = true
	return nil
}

// comparison compares the lines of the file with those of the logs.
type comparison struct {
	w       *Writer
	in      *bufio.Reader
	streams []*stream
}

// stream is the lines of one log.
type stream struct {
	which   int
	log     eventlog.Reader
	head    eventlog.Head // of the batch before the first of batches
	batches []*eventlog.Batch
	lines   []renderedLine // of the first batch, as far as they have not matched
	opened  bool           // lines has those of the first batch
	matched bool           // a line of the first batch has matched
	// oldest is the revision up to which the log has nothing any more.
	oldest uint64
}

type renderedLine struct {
	text   []byte
	erased bool // a payload of its event was erased
}

// nextLine returns the next line of the log; nil if there is none.
func (s *stream) nextLine(ctx context.Context, w *Writer) (*renderedLine, error) {
	for {
		if len(s.lines) > 0 {
			return &s.lines[0], nil
		}
		if s.opened {
			s.head, s.batches, s.opened, s.matched = s.batches[0].Head(), s.batches[1:], false, false
		}
		if len(s.batches) == 0 {
			if err := s.read(ctx, w); err != nil || len(s.batches) == 0 {
				return nil, err
			}
		}
		s.opened = true
		for _, e := range s.batches[0].Events {
			for text := range bytes.Lines(Render(nil, e, w.o.Key)) {
				s.lines = append(s.lines, renderedLine{text, erased(e)})
			}
		}
	}
}

// read reads the next batches. What the log does not keep any more is skipped.
func (s *stream) read(ctx context.Context, w *Writer) (err error) {
	s.batches, err = s.log.CatchUp(ctx, s.head)
	forgotten := (*eventlog.ForgottenError)(nil)
	if errors.As(err, &forgotten) && forgotten.Oldest.Revision > s.head.Revision {
		s.head, s.oldest = forgotten.Oldest, forgotten.Oldest.Revision
		s.batches, err = s.log.CatchUp(ctx, s.head)
	}
	if s.which == decisionLog && eventlog.IsFatal(err) && !errors.As(err, new(*eventlog.KeyError)) {
		err = nil // it has no lines, then
	}
	return err
}

func erased(e *eventlog.Event) bool {
	for i, p := range e.Meta.GetPayloads() {
		if p.GetSize() > 0 && e.Contents[i] == nil {
			return true
		}
	}
	return false
}

// maxLine bounds the lines of a file that may have been changed.
const maxLine = 64 << 20

// run moves the position past the lines that match.
func (c *comparison) run(ctx context.Context) error {
	for {
		line, err := c.line()
		if err != nil || line == nil {
			return err
		}
		found, err := c.find(ctx, line)
		if err != nil {
			return err
		}
		if !found && !c.keeps(line) {
			return nil
		}
		c.w.at.add(line, c.w.o.MarkBytes)
	}
}

// line returns the next line of the file; nil if there is none.
func (c *comparison) line() (line []byte, err error) {
	for {
		part, err := c.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF), errors.Is(err, bufio.ErrBufferFull) && len(line) > maxLine:
			return nil, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// find reports whether a line is the next one of a log, and takes it from there.
func (c *comparison) find(ctx context.Context, line []byte) (bool, error) {
	for _, s := range c.streams {
		next, err := s.nextLine(ctx, c.w)
		if err != nil {
			return false, err
		}
		if next != nil && (bytes.Equal(line, next.text) || next.erased && sameButBodies(line, next.text)) {
			s.lines, s.matched = s.lines[1:], true
			return true, nil
		}
	}
	return false, nil
}

// sameButBodies reports whether two lines differ only in the bodies of the request and of the answer.
func sameButBodies(a, b []byte) bool {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	for _, body := range []string{"requestObject", "responseObject"} {
		delete(x, body)
		delete(y, body)
	}
	if len(x) != len(y) {
		return false
	}
	for name, value := range x {
		if !bytes.Equal(value, y[name]) {
			return false
		}
	}
	return true
}

// keeps reports whether a line stays that no log has: one about a gap, or one of what its log does not keep any more, or has
// lost.
func (c *comparison) keeps(line []byte) bool {
	if !json.Valid(line) {
		return false
	}
	if strings.HasPrefix(gjson.GetBytes(line, "auditID").Str, gapID) {
		return true
	}
	annotations := gjson.GetBytes(line, "annotations").Map()
	if c.w.lostEnd && annotations[DecisionAnnotation].Exists() {
		return true
	}
	for _, s := range c.streams {
		name := RevisionAnnotation
		if s.which == decisionLog {
			name = DecisionAnnotation
		}
		if n, err := strconv.ParseUint(annotations[name].Str, 10, 64); err == nil && n <= s.oldest {
			return true
		}
	}
	return false
}

// cut removes what follows the position. It sets that aside, unless it is the beginning of a next line.
func (c *comparison) cut(ctx context.Context, size int64) error {
	w := c.w
	if size <= w.at.size {
		return nil
	}
	begins := false
	for _, s := range c.streams {
		next, err := s.nextLine(ctx, w)
		if err != nil {
			return err
		}
		if next != nil && size-w.at.size < int64(len(next.text)) {
			rest := make([]byte, size-w.at.size)
			if _, err := w.file.ReadAt(rest, w.at.size); err != nil {
				return err
			}
			begins = begins || bytes.HasPrefix(next.text, rest)
		}
	}
	if !begins {
		if err := w.setAside(io.NewSectionReader(w.file, w.at.size, size-w.at.size)); err != nil {
			return err
		}
	}
	return w.file.Truncate(w.at.size)
}
