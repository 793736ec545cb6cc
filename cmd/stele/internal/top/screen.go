package top

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
	"stele.dev/stele/limits/steady"
)

// screen draws frames on a terminal, on its alternate screen.
type screen struct {
	out      io.Writer
	size     func() (width, height int)
	keys     <-chan byte      // what the user types
	resized  <-chan os.Signal // the terminal has another size
	interval time.Duration
}

// The control sequences of terminals (ECMA-48, xterm).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	noStyle     = "\x1b[0m"
)

// run draws frames until the user types q or ctrl-c, or the context ends. A frame is drawn again, clipped to the new
// size, when the size changes.
func (s *screen) run(ctx context.Context, frame func(context.Context) []byte) error {
	if _, err := io.WriteString(s.out, enterScreen); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(s.out, leaveScreen) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	frames := make(chan []byte)
	go func() {
		for {
			select {
			case frames <- frame(ctx):
			case <-ctx.Done():
				return
			}
			if steady.Wait(ctx, s.interval) != nil {
				return
			}
		}
	}()
	var last []byte
	for {
		select {
		case last = <-frames:
		case <-s.resized:
		case key := <-s.keys:
			if key == 'q' || key == 'Q' || key == ctrlC {
				return nil
			}
			continue
		case <-ctx.Done():
			return nil
		}
		width, height := s.size()
		if _, err := s.out.Write(clip(last, width, height)); err != nil {
			return err
		}
	}
}

// ctrlC is what a terminal in raw mode sends for ctrl-c.
const ctrlC = 3

// clip returns the text for a screen: the lines that fit, none longer than the screen is wide.
func clip(text []byte, width, height int) []byte {
	var b bytes.Buffer
	b.WriteString(home)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		clipLine(&b, line, width)
		b.WriteString(noStyle + clearLine)
	}
	b.WriteString(clearBelow)
	return b.Bytes()
}

// clipLine writes the first columns of a line. Control sequences take no column.
func clipLine(b *bytes.Buffer, line string, width int) {
	styled := false
	for _, r := range line {
		switch {
		case r == '\x1b':
			styled = true
		case styled:
			styled = r != 'm'
		case columns(r) > width:
			return
		default:
			width -= columns(r)
		}
		b.WriteRune(r)
	}
}

// columns returns how many columns of a terminal a character takes at most: two for those of East Asian scripts and
// for pictures.
func columns(r rune) int {
	if r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f ||
		r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300) {
		return 2
	}
	return 1
}

// openScreen prepares a terminal: keys arrive as they are typed. restore gives the terminal back as it was.
func openScreen(in, out *os.File, interval time.Duration) (s *screen, restore func(), err error) {
	size := func() (int, int) {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	s = &screen{out: out, size: size, resized: resized, interval: interval}
	restore = func() { signal.Stop(resized) }
	if !term.IsTerminal(int(in.Fd())) {
		return s, restore, nil // ctrl-c is a signal then
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		signal.Stop(resized)
		return nil, nil, err
	}
	keys := make(chan byte)
	s.keys = keys
	ended := make(chan struct{})
	go func() {
		buffer := make([]byte, 1)
		for {
			if n, err := in.Read(buffer); err != nil || n == 0 {
				return
			}
			select {
			case keys <- buffer[0]:
			case <-ended:
				return
			}
		}
	}()
	return s, func() {
		signal.Stop(resized)
		_ = term.Restore(int(in.Fd()), state)
		close(ended)
	}, nil
}
