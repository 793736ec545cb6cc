package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"stele.dev/stele/plugins/authorizerpb"
	"stele.dev/stele/plugins/conformance"
	"stele.dev/stele/plugins/sdk"
)

// The test binary is also a plugin, by this name.
const pluginName = "talkative"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == pluginName {
		talkative()
		return
	}
	os.Exit(m.Run())
}

// talkative is a plugin that prints at every step and for every request.
func talkative() {
	fmt.Println("before it serves")
	out := os.Stdout
	go func() {
		for range 5 {
			fmt.Fprintln(out, "while it starts")
		}
	}()
	sdk.Serve(sdk.Plugin[struct{}]{Name: pluginName, Version: "1", New: func(context.Context, struct{}, map[string][]byte) (sdk.Authorizer, error) {
		return sdk.Func(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			switch r.Verb {
			case "print":
				fmt.Println("to standard output")
				fmt.Fprintln(os.Stderr, "to standard error")
				// This is more than pipes hold: the plugin must not block.
				fmt.Println(strings.Repeat("x", 1<<20))
			case "panic":
				panic("at the disco")
			case "count":
				return sdk.Allow(fmt.Sprint(len(r.User.Groups[0]))), nil
			}
			return sdk.NoOpinion(), nil
		}), nil
	}})
}

// program returns a copy of the test binary that runs as a plugin.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), pluginName)
	if err := os.Link(self, file); err != nil {
		text, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(file, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return file
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func running(t *testing.T, log *buffer) *conformance.Instance {
	t.Helper()
	s := &conformance.Subject{Start: conformance.Program(program(t), slog.New(slog.NewTextHandler(log, nil)))}
	i, err := s.Configured(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	t.Cleanup(i.Close)
	return i
}

func asking(verb string) *authorizerpb.AuthorizeRequest {
	return &authorizerpb.AuthorizeRequest{Verb: verb}
}

func TestPrintingDoesNoHarmAndIsLogged(t *testing.T) {
	var log buffer
	i := running(t, &log)
	if _, err := i.Authorizer.Authorize(t.Context(), asking("print")); err != nil {
		t.Fatal(err)
	}
	i.Close() // all has been read
	for _, want := range []string{"before it serves", "to standard output", "to standard error"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not in the log:\n%.2000s", want, &log)
		}
	}
}

func TestAPanicIsToldWithItsStack(t *testing.T) {
	var log buffer
	i := running(t, &log)
	if _, err := i.Authorizer.Authorize(t.Context(), asking("panic")); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	if _, err := i.Authorizer.Authorize(t.Context(), asking("get")); err != nil {
		t.Errorf("the next call: %v", err)
	}
	i.Close()
	if !strings.Contains(log.String(), "at the disco") || !strings.Contains(log.String(), "serve_test.go") {
		t.Errorf("the stack is not in the log:\n%.2000s", &log)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("it is taken for the end of the program, as all that it prints from then on:\n%.2000s", &log)
	}
}

func TestRequestsOfFourMegabytesAreTaken(t *testing.T) {
	const size = 5 << 20
	i := running(t, new(buffer))
	r := asking("count")
	r.User = &authorizerpb.User{Groups: []string{strings.Repeat("g", size)}}
	answer, err := i.Authorizer.Authorize(t.Context(), r, grpc.MaxCallSendMsgSize(size+1<<10))
	if err != nil || answer.GetReason() != fmt.Sprint(size) {
		t.Errorf("got %v, %v", answer, err)
	}
}

func TestAPersonIsToldWhatItIs(t *testing.T) {
	var stderr bytes.Buffer
	cmd := exec.Command(program(t))
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(stderr.String(), "talkative 1 is an authorizer plugin") || !strings.Contains(stderr.String(), "stele plugin check ./talkative") {
		t.Errorf("it says %q", stderr.String())
	}
}

// However stele ends, the plugin must end, too.
func TestItEndsWithItsInput(t *testing.T) {
	cmd := exec.Command(program(t))
	cmd.Env = []string{authorizerpb.Handshake.MagicCookieKey + "=" + authorizerpb.Handshake.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=1", "PLUGIN_UNIX_SOCKET_DIR=" + t.TempDir()}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	greeting := make([]byte, 4)
	if _, err := io.ReadFull(stdout, greeting); err != nil || string(greeting) != "1|1|" {
		t.Fatalf("it greets with %q: %v", greeting, err)
	}
	stdin.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("it goes on")
	}
}

// A killed parent sends no message, and its child may have no pipe to it.
func TestItEndsWithItsParent(t *testing.T) {
	cmd := exec.Command("sh", "-c", `"$0" < /dev/null & echo $!; wait`, program(t))
	cmd.Env = []string{authorizerpb.Handshake.MagicCookieKey + "=" + authorizerpb.Handshake.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=1", "PLUGIN_UNIX_SOCKET_DIR=" + t.TempDir()}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Its output stays open as long as the plugin runs.
	ended := make(chan string, 1)
	greeted := make(chan struct{})
	go func() {
		var said strings.Builder
		buf := make([]byte, 1<<10)
		for {
			n, err := stdout.Read(buf)
			before := strings.Contains(said.String(), "1|1|")
			said.Write(buf[:n])
			if !before && strings.Contains(said.String(), "1|1|") {
				close(greeted)
			}
			if err != nil {
				ended <- said.String()
				return
			}
		}
	}()
	select {
	case <-greeted:
	case said := <-ended:
		t.Fatalf("it ended by itself: %q", said)
	}
	_ = cmd.Process.Kill()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
	_ = cmd.Wait()
}
