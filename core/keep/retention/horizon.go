package retention

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/google/renameio/v2"
)

// catchUp is how much further than the time that has passed the horizon may move in one step.
const catchUp = time.Hour

// Horizon is the time from which ages are counted. It is a clock that one wrong clock cannot move: what is
// erased never comes back. It is never ahead of
//
//   - this machine's clock, which ignores a jump for some minutes ([eventlog.Log.Now]),
//   - the log time of the newest event, plus the time that has passed since that event was first seen,
//   - its own last value, plus the time that has passed since then by a clock that nobody can set, plus an hour.
//
// So after a clock has jumped ahead by a year, the past shrinks by an hour in each step, which is logged, and
// an operator has days to set the clock. The last value is in a file. It never goes back. A Horizon belongs to one
// goroutine.
type Horizon struct {
	file    string
	elapsed func() time.Duration // since any fixed moment; it never goes back

	at      time.Time     // the last value
	moved   time.Duration // elapsed at that value
	newest  uint64        // revision of the newest event that was seen
	seen    time.Duration // elapsed when it was seen
	started bool
}

// horizonFile is the content of the file.
type horizonFile struct {
	Time time.Time `json:"time"`
}

// OpenHorizon reads the file of a horizon, which need not exist. elapsed is a clock that nobody can set.
func OpenHorizon(file string, elapsed func() time.Duration) (*Horizon, error) {
	h := &Horizon{file: file, elapsed: elapsed, moved: elapsed()}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, err
	}
	var saved horizonFile
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; delete it: ages are then counted from the newest event of the log", file, err)
	}
	h.at, h.started = saved.Time, true
	return h, nil
}

// Step moves the horizon and returns it. now is this machine's time; newest and written are the revision and the log
// time of the newest event. behind is true if the horizon is more than catchUp behind now: it is catching up.
func (h *Horizon) Step(now time.Time, newest uint64, written time.Time) (at time.Time, behind bool, err error) {
	elapsed := h.elapsed()
	if newest != h.newest || h.newest == 0 {
		h.newest, h.seen = newest, elapsed
	}
	first := !h.started
	if first { // nothing is known of the clock but what it wrote into the log
		h.at, h.started = written, true
	}
	next := earliest(now, written.Add(elapsed-h.seen), h.at.Add(elapsed-h.moved+catchUp))
	h.moved = elapsed
	if first || next.After(h.at) {
		h.at = latest(h.at, next)
		text, err := json.Marshal(horizonFile{h.at.UTC()})
		if err != nil {
			return time.Time{}, false, err
		}
		if err := renameio.WriteFile(h.file, append(text, '\n'), 0o600); err != nil {
			return time.Time{}, false, fmt.Errorf("save how far the past has been erased: %w", err)
		}
	}
	return h.at, now.Sub(h.at) > catchUp, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(times ...time.Time) time.Time {
	first := times[0]
	for _, t := range times[1:] {
		if t.Before(first) {
			first = t
		}
	}
	return first
}
