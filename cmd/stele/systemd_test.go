package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A service manager hears of a start, of readiness, of life and of the stop. While a server waits for balancers to notice,
// it is not ready, and serves.
func TestAServiceManagerHearsOfTheServersLife(t *testing.T) {
	t.Parallel()
	socket, err := os.MkdirTemp("", "notify") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(socket)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(socket, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	program, err := exec.LookPath("stele")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(socket, "s"), "WATCHDOG_USEC=200000")
	p, err := serveProcess(program, t.TempDir(), env, "--shutdown-delay-duration", "2m")
	if err != nil {
		t.Fatal(err)
	}
	defer p.end(syscall.SIGKILL)
	hear := func(want string) {
		t.Helper()
		text := make([]byte, 1<<10)
		var heard []string
		for {
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(text)
			if err != nil {
				t.Fatalf("it has not heard %q, but %q: %v\n%s", want, heard, err, p.stderr.String())
			}
			if heard = append(heard, string(text[:n])); strings.HasPrefix(heard[len(heard)-1], want) {
				return
			}
		}
	}
	hear("STATUS=Starting: opening the log\nEXTEND_TIMEOUT_USEC=")
	hear("READY=1\nSTATUS=Serving https://127.0.0.1:")
	hear("WATCHDOG=1")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hear("STOPPING=1\nSTATUS=Stopping\nEXTEND_TIMEOUT_USEC=180000000")
	stopping := time.Now()
	api := regexp.MustCompile(`https://127\.0\.0\.1:\d+`).FindString(p.stdout.String())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	get := func(path string) int {
		answer, err := client.Get(api + path)
		if err != nil {
			return 0
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for get("/readyz") != http.StatusInternalServerError {
		if time.Since(stopping) > time.Minute {
			t.Fatal("a minute after SIGTERM, /readyz does not fail")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if code := get("/version"); code != http.StatusOK {
		t.Errorf("while the server waits for balancers, /version is %d", code)
	}
	hear("WATCHDOG=1") // it lives until the end
}
