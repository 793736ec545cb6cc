package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
)

// Lines is a sink that writes lines to a writer, such as standard output. A writer that blocks holds up nothing but the lines: Send ends
// with its context, and the write goes on. It is safe for concurrent use.
type Lines struct {
	name string
	w    io.Writer
	// writing has a token while a write runs; who holds it may use the fields below.
	writing chan struct{}
	// late is what was written after its Send had ended, newest last, one for each of the two logs that are sent; the same lines are
	// then not written again.
	late [][]byte
	// torn says that the last write has ended within a line.
	torn bool
}

// NewLines returns a sink that writes to w.
func NewLines(name string, w io.Writer) *Lines {
	return &Lines{name: name, w: w, writing: make(chan struct{}, 1)}
}

// Name returns the name.
func (l *Lines) Name() string { return l.name }

// Send writes the lines.
func (l *Lines) Send(ctx context.Context, records []Record) error {
	var all []byte
	for _, r := range records {
		all = append(all, r.Line...)
	}
	select {
	case l.writing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("lines before these are not written yet: %w", ctx.Err())
	}
	if i := slices.IndexFunc(l.late, func(late []byte) bool { return bytes.Equal(all, late) }); i >= 0 {
		l.late = slices.Delete(l.late, i, i+1)
		<-l.writing
		return nil
	}
	result := make(chan error)
	go func() {
		err := l.write(all)
		select {
		case result <- err:
		case <-ctx.Done():
			if err == nil {
				l.late = append(l.late[max(0, len(l.late)-1):], all)
			}
		}
		<-l.writing
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the lines are not written yet: %w", ctx.Err())
	}
}

// write writes whole lines. After a write that has ended within a line it begins a new one.
func (l *Lines) write(lines []byte) error {
	if l.torn {
		if _, err := l.w.Write([]byte("\n")); err != nil {
			return err
		}
		l.torn = false
	}
	n, err := l.w.Write(lines)
	l.torn = err != nil && n > 0 && lines[n-1] != '\n'
	return err
}
