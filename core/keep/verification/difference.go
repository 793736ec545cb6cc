package verification

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/projections/checkpoint"
)

// difference says which is the first record that two states do not share.
func difference(live, rebuilt State) string {
	next, stop := iter.Pull(records(rebuilt))
	defer stop()
	for is := range records(live) {
		want, more := next()
		switch {
		case !more:
			return fmt.Sprintf("%s: %s is there, and the log does not have it", is.section, live.Describe(is.section, is.record))
		case is.section != want.section:
			return fmt.Sprintf("%s ends before %s, %s", is.section, want.section, rebuilt.Describe(want.section, want.record))
		case bytes.Equal(is.record, want.record):
			continue
		}
		here, there := live.Describe(is.section, is.record), rebuilt.Describe(want.section, want.record)
		if here == there {
			return fmt.Sprintf("%s: %s has other content than in the log", is.section, here)
		}
		return fmt.Sprintf("%s: %s is there, where the log has %s", is.section, here, there)
	}
	if want, more := next(); more {
		return fmt.Sprintf("%s: %s is missing", want.section, rebuilt.Describe(want.section, want.record))
	}
	return "the versions of their sections differ"
}

type part struct {
	section string
	record  []byte // only valid until the next one
}

var errEnough = errors.New("enough")

// records yields the records of a state.
func records(s State) iter.Seq[part] {
	return func(yield func(part) bool) {
		_ = s.Save(&yielding{yield: yield}) // only the consumer ends it, and states that fail have been found before
	}
}

type yielding struct {
	section string
	yield   func(part) bool
}

func (y *yielding) Begin(name string, _ uint32) error {
	y.section = name
	return nil
}

func (y *yielding) Put(record []byte) error {
	if !y.yield(part{y.section, record}) {
		return errEnough
	}
	return nil
}

func (*yielding) Of(eventlog.Kind) error { return nil }

var _ checkpoint.Sink = (*yielding)(nil)
