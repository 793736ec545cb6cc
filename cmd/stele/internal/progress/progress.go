// Package progress tells the user of a command what it does, if that takes long.
package progress

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// drawAfter is how long a command may take before it says on a terminal what it does, in one line that is drawn again every
	// drawEvery.
	drawAfter = 2 * time.Second
	drawEvery = 500 * time.Millisecond
	// lineEvery is how often it says it elsewhere.
	lineEvery = 10 * time.Second
)

// progress says what a command does while that takes long. It is safe for concurrent use.
type progress struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	begun time.Time
	text  string // "" if the command does nothing that takes long
	drawn bool   // the last line of the terminal is of it
	timer *time.Timer
}

type progressKey struct{}

// Track returns a context by which [Doing] tells the user on out what the command does, if it takes long: on a terminal after 2
// seconds in one line that is drawn again, else in a line each 10 seconds. done ends that.
func Track(ctx context.Context, out io.Writer, terminal bool) (tracked context.Context, done func()) {
	p := &progress{out: out, terminal: terminal, begun: time.Now()}
	after := lineEvery
	if terminal {
		after = drawAfter
	}
	p.timer = time.AfterFunc(after, p.say)
	return context.WithValue(ctx, progressKey{}, p), p.end
}

// Doing notes what the command of a context does from now on. "" removes what is on the terminal, before the command prints something.
func Doing(ctx context.Context, format string, args ...any) {
	p, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text = fmt.Sprintf(format, args...); p.text == "" {
		p.clear()
	}
}

// say says what the command does, and when it says it again.
func (p *progress) say() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return
	}
	every := lineEvery
	if p.terminal {
		every = drawEvery
	}
	p.timer.Reset(every)
	if p.text == "" {
		return
	}
	text := fmt.Sprintf("%s (%v)", p.text, time.Since(p.begun).Round(time.Second))
	if p.terminal {
		p.drawn = true
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(p.out, text)
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.clear()
}
