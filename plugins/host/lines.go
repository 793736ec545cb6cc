package host

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	lineBytes      = 2 << 10 // what is longer is cut
	linesPerSecond = 50
	lastWords      = 512
)

// limiter lets so many things through in a second.
type limiter struct {
	mu             sync.Mutex
	second         time.Time
	taken, dropped int
}

// take tells whether one more may pass, and how many have not since the last one that did.
func (l *limiter) take() (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.second) >= time.Second {
		l.second, l.taken = now, 0
	}
	if l.taken >= linesPerSecond {
		l.dropped++
		return 0, false
	}
	l.taken++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

// lines writes what a plugin prints into the log, a record for each line. Lines that are too long are
// cut, and what is too much is left out and counted: printing costs nobody memory, nor a disk.
type lines struct {
	log     *slog.Logger
	stream  string
	level   slog.Level // of lines that don't say
	most    slog.Level // that lines may have
	limit   *limiter
	mu      sync.Mutex
	partial []byte
	cut     bool
	last    string // the last line, or the one that it panicked with
	panics  bool
}

// Write never fails.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte{'\n'})
		room := lineBytes - len(l.partial)
		l.cut = l.cut || len(line) > room
		l.partial = append(l.partial, line[:min(len(line), room)]...)
		if rest = after; ended {
			l.end()
		}
	}
	return len(p), nil
}

func (l *lines) end() {
	line := strings.ToValidUTF8(string(bytes.TrimSpace(l.partial)), "\uFFFD")
	cut := l.cut
	l.partial, l.cut = l.partial[:0], false
	if line == "" {
		return
	}
	if !l.panics {
		l.panics = strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		l.last = line[:min(len(line), lastWords)]
	}
	dropped, ok := l.limit.take()
	if !ok {
		return
	}
	level, message, fields := parseLine(line, l.level)
	level = min(level, l.most)
	if l.panics {
		level = slog.LevelError
	}
	attrs := append(make([]slog.Attr, 0, 4), slog.String("stream", l.stream))
	if len(fields) > 0 {
		attrs = append(attrs, slog.Any("fields", fields))
	}
	if cut {
		attrs = append(attrs, slog.Bool("cut", true))
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", dropped))
	}
	l.log.LogAttrs(context.Background(), level, message, attrs...)
}

// words are the last line that was printed, or that of a panic.
func (l *lines) words() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// parseLine understands what hclog and slog write as JSON; every other line is its own message.
func parseLine(line string, level slog.Level) (slog.Level, string, map[string]any) {
	fields := map[string]any{}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &fields) != nil {
		return level, line, nil
	}
	message := line
	for _, name := range []string{"@message", "msg"} {
		if text, is := fields[name].(string); is {
			message = text
			delete(fields, name)
		}
	}
	for _, name := range []string{"@level", "level"} {
		text, is := fields[name].(string)
		if is && strings.EqualFold(text, "trace") {
			text = "debug"
		}
		if is && level.UnmarshalText([]byte(text)) == nil {
			delete(fields, name)
		}
	}
	delete(fields, "@timestamp")
	delete(fields, "time")
	return level, message, fields
}
