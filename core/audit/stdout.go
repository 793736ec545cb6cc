package audit

import (
	"context"
	"io"
)

// Lines is a sink that writes lines to a writer, such as standard output. A writer that blocks holds up its feeder only.
type Lines struct {
	name string
	w    io.Writer
}

// NewLines returns a sink that writes to w.
func NewLines(name string, w io.Writer) *Lines { return &Lines{name, w} }

// Name returns the name.
func (l *Lines) Name() string { return l.name }

// Send writes the lines.
func (l *Lines) Send(_ context.Context, records []Record) error {
	var all []byte
	for _, r := range records {
		all = append(all, r.Line...)
	}
	_, err := l.w.Write(all)
	return err
}
