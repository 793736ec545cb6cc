package host

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		handler := slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		l := &lines{log: slog.New(handler), stream: "stderr", limit: &limiter{}}
		write := func(text string) string {
			log.Reset()
			_, _ = l.Write([]byte(text))
			return log.String()
		}
		equal := func(got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%.200q, want %.200q", got, want)
			}
		}
		equal(write("one\ntw"), "level=INFO msg=one stream=stderr\n")
		equal(write("o\n\n \n"), "level=INFO msg=two stream=stderr\n")
		equal(write("\xff\n"), "level=INFO msg=\"\uFFFD\" stream=stderr\n")
		write(strings.Repeat("x", 10<<20))
		equal(write("\n"), "level=INFO msg="+strings.Repeat("x", lineBytes)+" stream=stderr cut=true\n")
		if len(l.partial) > lineBytes {
			t.Errorf("%d bytes are kept", len(l.partial))
		}
		time.Sleep(time.Second)
		for i := range 1000 {
			write(fmt.Sprint(i, "\n"))
		}
		time.Sleep(time.Second)
		equal(write("again\n"), "level=INFO msg=again stream=stderr dropped=950\n")
		equal(write("panic: oh\n\ngoroutine 1\n"), "level=ERROR msg=\"panic: oh\" stream=stderr\nlevel=ERROR msg=\"goroutine 1\" stream=stderr\n")
		equal(l.lastLine(), "panic: oh")
	})
}
