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
	lineBytes      = 2 << 10 // longer lines are cut
	linesPerSecond = 50
	lastBytes      = 512 // of the last line
)

// limiter lets linesPerSecond lines through in a second. It is safe for concurrent use.
type limiter struct {
	mu             sync.Mutex
	second         time.Time
	taken, dropped int
}

// take reports whether one more line may pass, and how many were dropped since the last one that did.
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

// lines writes a plugin's output to the log, one record for each line. It cuts long lines, and drops and counts lines above
// the limit, so that output can neither fill the memory nor the disk. It is safe for concurrent use.
type lines struct {
	log     *slog.Logger
	stream  string
	level   slog.Level // of lines without a level
	most    slog.Level // the highest level of a record
	limit   *limiter
	mu      sync.Mutex
	partial []byte // the beginning of the current line
	cut     bool   // the current line was cut
	last    string // the last line, or the first one of a panic
	panics  bool   // a line looked like that of a panic
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
		l.last = line[:min(len(line), lastBytes)]
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

// lastLine returns the last line that was printed, or the first one of a panic.
func (l *lines) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// parseLine returns the level, message and fields of a line. It parses the JSON of hclog and slog; any other line is a
// message.
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
