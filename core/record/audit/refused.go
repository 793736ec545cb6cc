package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"stele.dev/stele/projections/audit"
)

// PartlyRefused is the error of a sink that has taken records and rejects some of them for good, without saying which.
type PartlyRefused struct {
	// Records is how many it rejects.
	Records int64
	// Answer is what it says about them.
	Answer string
}

func (e *PartlyRefused) Error() string {
	return fmt.Sprintf("the sink rejects %d records: %.200q", e.Records, e.Answer)
}

// A line that can never be taken must neither hold up the others nor get lost. A sink that takes nothing at all must not
// make the feeder give up the lines. Both answer in the same way, with a 400 or a 401. So the feeder tells them apart by
// experiment: after some attempts it sends smaller parts, down to single lines. A line is set aside if the sink refuses it
// alone and takes another one right after, twice. If the sink takes no other, the lines wait, as for a sink that is down.
const (
	// refusalsBefore is how many attempts in a row are refused before a batch is sent in parts.
	refusalsBefore = 4
	// rounds is how often a line must be refused while another one is taken.
	rounds = 2
	// maxWitness bounds the line that is kept to be sent again.
	maxWitness = 64 << 10
	// maxAside bounds the file of lines that were set aside. When it is full, the next such line waits.
	maxAside = 64 << 20
)

// countRefusal returns how many attempts in a row the sink has refused.
func countRefusal(before int, err error) int {
	if errors.Is(err, ErrRefused) {
		return before + 1
	}
	return 0
}

// isolate sends the first n records of the batch in smaller and smaller parts, and sets aside those that the sink refuses alone. The
// error is that of the last attempt, if the sink takes nothing.
func (f *Feeder) isolate(ctx context.Context, n int) error {
	rest := len(f.batch) - n
	err := f.sendSome(ctx, n)
	switch n := len(f.batch) - rest; {
	case !errors.Is(err, ErrRefused):
		return err
	case n > 1:
		if err := f.isolate(ctx, n/2); err != nil {
			return err
		}
		return f.isolate(ctx, n-n/2)
	}
	for round := range rounds {
		if round > 0 {
			if again := f.sendSome(ctx, 1); !errors.Is(again, ErrRefused) {
				return again
			}
		}
		if !f.takesAnother(ctx, &f.batch[0]) {
			return err
		}
	}
	return f.setAside(err)
}

// takesAnother reports whether the sink takes another record than one that it refuses: one that it took before, one of the
// batch, or the newest of the log. So records may be sent again.
func (f *Feeder) takesAnother(ctx context.Context, than *Record) bool {
	others := []*Record{f.witness}
	if f.witness == nil {
		others = []*Record{&f.batch[0], &f.batch[len(f.batch)-1], f.newestRecord(ctx)}
	}
	for _, other := range others {
		if other == nil || string(other.Line) == string(than.Line) {
			continue
		}
		if f.attempt(ctx, []Record{*other}) == nil {
			f.witness = other
			return true
		}
	}
	return false
}

// newestRecord returns the newest record of the log; nil if the newest events have no lines.
func (f *Feeder) newestRecord(ctx context.Context) *Record {
	batches, err := f.o.Log.Back(ctx, ^uint64(0)>>1, 64)
	if err != nil {
		return nil
	}
	for _, b := range batches {
		for i := len(b.Events) - 1; i >= 0; i-- {
			e := b.Events[i]
			if lines := audit.Render(nil, e, f.o.Key); len(lines) > 0 {
				return &Record{lines[:lineLength(lines)], e}
			}
		}
	}
	return nil
}

// refusedFile returns the name of the file of lines that were set aside.
func (f *Feeder) refusedFile() string {
	return strings.TrimSuffix(f.o.File, ".cursor") + ".refused.jsonl"
}

// refusedLine is a line of that file.
type refusedLine struct {
	RefusedAt time.Time       `json:"refusedAt"`
	Sink      string          `json:"sink"`
	Log       string          `json:"log"`
	Answer    string          `json:"answer"`
	Event     json.RawMessage `json:"event"`
}

// answer is that of the sink to the first records of the batch, of which it refuses some.
type answer struct {
	records, refused int
	why              error
}

// setAside writes the first record of the batch to the file of those that the sink refuses.
func (f *Feeder) setAside(why error) error {
	f.answer = &answer{1, 1, why}
	return f.writeAnswer()
}

// setPartAside writes the first n records of the batch, of which the sink has rejected some, to the file. It has not said which, so
// all of them are there.
func (f *Feeder) setPartAside(n int, partly *PartlyRefused) error {
	rejected := int(min(partly.Records, int64(n)))
	f.answer = &answer{n, rejected, fmt.Errorf("%d of these %d lines are rejected: %.200q", rejected, n, partly.Answer)}
	return f.writeAnswer()
}

// writeAnswer writes to the file what the answer is about, if there is one. If it fails, the records stay in the batch, and are not to
// be sent again.
func (f *Feeder) writeAnswer() error {
	a := f.answer
	if a == nil {
		return nil
	}
	var lines []byte
	for _, r := range f.batch[:a.records] {
		line, err := json.Marshal(&refusedLine{time.Now().UTC(), f.o.Sink.Name(), f.o.LogName, a.why.Error(), json.RawMessage(strings.TrimSpace(string(r.Line)))})
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	if err := f.appendRefused(lines); err != nil {
		return fmt.Errorf("%v; the lines cannot be set aside: %w", a.why, err) // it is not refused again
	}
	f.answer = nil
	f.took(a.records, a.records-a.refused)
	f.o.Metrics.refused.WithLabelValues(f.o.Sink.Name(), f.o.LogName).Add(float64(a.refused))
	if n := uint64(a.refused); f.aside.Add(n) == n {
		f.o.Logger.Error("a sink refuses lines and takes others; they are set aside, and so are later ones without a message", "sink", f.o.Sink.Name(), "log", f.o.LogName, "file", f.refusedFile(), "answer", a.why)
	}
	return nil
}

// appendRefused appends lines to the file, and returns when they are on disk.
func (f *Feeder) appendRefused(lines []byte) (err error) {
	file, err := os.OpenFile(f.refusedFile(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size+int64(len(lines)) > maxAside {
		return fmt.Errorf("%s is full: send its lines, and move it away", f.refusedFile())
	}
	if last := make([]byte, 1); size > 0 {
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' { // a crash has cut the last line
			lines = append([]byte("\n"), lines...)
		}
	}
	if _, err := file.Write(lines); err != nil {
		return errors.Join(err, file.Truncate(size))
	}
	return file.Sync()
}

// refusedHealth names the file of lines that were set aside, if there are any.
func (f *Feeder) refusedHealth() error {
	info, err := os.Stat(f.refusedFile())
	if err != nil || info.Size() == 0 {
		return nil
	}
	return fmt.Errorf("%s has refused audit lines for good; they are in %s: send them, and remove the file", f.o.Sink.Name(), f.refusedFile())
}
