// Package systemd tells the service manager that has started the program what the server does, as sd_notify(3) describes.
// A service of Type=notify has started when the server is ready, and one with WatchdogSec= is restarted when the server
// no longer answers.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"stele.dev/stele/limits/steady"
)

// extension is how much longer a start may take that has made progress. A start reports its progress every ten seconds.
const extension = 90 * time.Second

// patience is how long a message waits for room in the socket of the service manager.
const patience = time.Second

// Service sends messages to the service manager. Without one it does nothing. It is safe for concurrent use.
type Service struct {
	logger *slog.Logger

	mu       sync.Mutex
	doing    string
	stopping bool
}

// New returns a service.
func New(logger *slog.Logger) *Service { return &Service{logger: logger} }

// notify sends lines.
func (s *Service) notify(lines ...string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	if err := send(socket, strings.Join(lines, "\n")); err != nil {
		s.logger.Warn("the service manager could not be told what the server does", "error", err)
	}
}

// send sends a message to a socket. Other than daemon.SdNotify it gives up, so that a service manager that reads nothing
// does not stop the server.
func send(socket, message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}

// Starting says what the start does. If that is not what it said last, the start may take longer than the service
// manager would wait.
func (s *Service) Starting(doing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if doing == s.doing || s.stopping {
		return
	}
	s.doing = doing
	s.notify("STATUS=Starting: "+doing, extendTimeout(extension))
}

func extendTimeout(d time.Duration) string {
	return fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds())
}

// Ready says that the server is ready, and what it does.
func (s *Service) Ready(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.notify("READY=1", "STATUS="+status)
	}
}

// Stopping says that the server stops, which takes that long at most.
func (s *Service) Stopping(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	s.notify("STOPPING=1", "STATUS=Stopping", extendTimeout(within))
}

// Watch tells the service manager that the server lives, four times in each interval of its watchdog, until the context ends. It asks
// the server each time, and says nothing if that returns an error or does not return within a quarter of the interval: two more can
// follow in time. The service manager kills a server that says nothing for a whole interval, and starts it again.
func (s *Service) Watch(ctx context.Context, live func(context.Context) error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.logger.Warn("the watchdog of the service manager is not understood", "error", err)
	}
	if interval <= 0 {
		return
	}
	s.beat(ctx, interval/4, live)
	for range steady.Every(ctx, interval/4) {
		s.beat(ctx, interval/4, live)
	}
}

// beat says that the server lives, if it does. It says nothing if the context has ended.
func (s *Service) beat(ctx context.Context, within time.Duration, live func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := live(limited)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.logger.Error("the server does not say that it lives; the service manager will restart it unless it soon does", "error", err)
		return
	}
	s.notify("WATCHDOG=1")
}
