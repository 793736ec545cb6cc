package systemd_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"stele.dev/stele/cmd/stele/internal/systemd"
)

// manager is a service manager: it gets messages.
type manager struct {
	*testing.T
	conn *net.UnixConn
	log  strings.Builder
}

func newManager(t *testing.T, watchdog time.Duration) (*manager, *systemd.Service) {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // a path of a socket has at most 108 bytes, and t.TempDir has the name of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	if watchdog > 0 {
		t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	}
	m := &manager{T: t, conn: conn}
	return m, systemd.New(slog.New(slog.NewTextHandler(&m.log, nil)))
}

// hears checks the next message.
func (m *manager) hears(want string) {
	m.Helper()
	text := make([]byte, 1000)
	if err := m.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		m.Fatal(err)
	}
	n, err := m.conn.Read(text)
	if err != nil {
		m.Fatal(err)
	}
	if got := string(text[:n]); got != want {
		m.Errorf("it hears %q, want %q", got, want)
	}
}

// hearsNothing checks that there is no message.
func (m *manager) hearsNothing() {
	m.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		m.Fatal(err)
	}
	text := make([]byte, 1000)
	if n, err := m.conn.Read(text); err == nil {
		m.Errorf("it hears %q", text[:n])
	}
}

// fill sends messages until the socket has no room.
func (m *manager) fill() {
	m.Helper()
	for full := false; !full; {
		conn, err := net.DialUnix("unixgram", nil, m.conn.LocalAddr().(*net.UnixAddr)) // each connection has a limit of its own, too
		if err != nil {
			m.Fatal(err)
		}
		raw, err := conn.SyscallConn()
		if err == nil {
			err = raw.Write(func(fd uintptr) bool {
				_, problem := unix.Write(int(fd), []byte("STATUS=Busy")) // does not wait
				full = problem != nil
				return true
			})
		}
		if err := errors.Join(err, conn.Close()); err != nil {
			m.Fatal(err)
		}
	}
}

func TestTheManagerHearsOfAServersLife(t *testing.T) {
	m, s := newManager(t, 0)
	s.Starting("reading the log: revision 1 of 9")
	m.hears("STATUS=Starting: reading the log: revision 1 of 9\nEXTEND_TIMEOUT_USEC=90000000")
	s.Starting("reading the log: revision 1 of 9") // no progress, so no more time
	m.hearsNothing()
	s.Starting("reading the log: revision 2 of 9")
	m.hears("STATUS=Starting: reading the log: revision 2 of 9\nEXTEND_TIMEOUT_USEC=90000000")
	s.Ready("Serving https://127.0.0.1:6443")
	m.hears("READY=1\nSTATUS=Serving https://127.0.0.1:6443")
	s.Stopping(25 * time.Second)
	m.hears("STOPPING=1\nSTATUS=Stopping\nEXTEND_TIMEOUT_USEC=25000000")
	s.Ready("too late")
	m.hearsNothing()
}

func TestAServerThatLivesSaysSo(t *testing.T) {
	m, s := newManager(t, 20*time.Second)
	synctest.Test(t, func(t *testing.T) {
		go s.Watch(t.Context(), func(context.Context) error { return nil })
		time.Sleep(11 * time.Second)
		for range 3 { // at 0, 5 and 10 s
			m.hears("WATCHDOG=1")
		}
		m.hearsNothing()
	})
}

func TestAServerThatAnswersLateOnceIsNotKilled(t *testing.T) {
	m, s := newManager(t, 20*time.Second)
	synctest.Test(t, func(t *testing.T) {
		beats := 0
		go s.Watch(t.Context(), func(ctx context.Context) error {
			if beats++; beats != 2 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(time.Second)
		m.hears("WATCHDOG=1")
		time.Sleep(8 * time.Second)
		m.hearsNothing()
		time.Sleep(2 * time.Second) // 11 s after the first message, and 9 s before the end of the interval
		m.hears("WATCHDOG=1")
	})
}

func TestAServerThatDoesNotLiveSaysNothing(t *testing.T) {
	for name, live := range map[string]func(context.Context) error{
		"it fails":       func(context.Context) error { return errors.New("deadlock") },
		"it never comes": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			m, s := newManager(t, 20*time.Second)
			synctest.Test(t, func(t *testing.T) {
				go s.Watch(t.Context(), live)
				time.Sleep(time.Minute)
				m.hearsNothing()
			})
			if !strings.Contains(m.log.String(), "does not say that it lives") {
				t.Errorf("the log says %s", m.log.String())
			}
		})
	}
}

func TestAServerThatIsAskedWhileItStopsHasNotFailed(t *testing.T) {
	m, s := newManager(t, 20*time.Second)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		s.Watch(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	})
	if m.log.String() != "" {
		t.Errorf("the log says %s", m.log.String())
	}
}

// It takes a second: that is how long a message waits.
func TestAManagerThatReadsNothingDoesNotStopTheServer(t *testing.T) {
	m, s := newManager(t, 0)
	m.fill()
	s.Ready("Serving https://127.0.0.1:6443")
	if !strings.Contains(m.log.String(), "could not be told") {
		t.Errorf("the log says %q", m.log.String())
	}
}

func TestWithoutAManagerNothingHappens(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	s := systemd.New(slog.New(slog.DiscardHandler))
	s.Starting("reading")
	s.Ready("serving")
	s.Watch(t.Context(), func(context.Context) error { t.Error("it is asked whether it lives"); return nil })
	s.Stopping(time.Second)
}
