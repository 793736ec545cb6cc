// Package console tests the page of `stele console` in a browser, against a control plane that runs.
package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var picture = flag.String("picture", "", "write the picture of docs/CONSOLE.md to this file")

// patience is how long a test waits for what takes milliseconds on an idle machine.
var patience = flag.Duration("patience", time.Minute, "how long to wait for what must happen")

// The program, the control plane and the browser that all tests share.
var (
	stele   string
	plane   *controlPlane
	browser context.Context
	origin  string // of a console of the administrator, which the browser has opened
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		return 1, fmt.Errorf("the tests need Chromium: apt-get install chromium: %w", err)
	}
	work, err := os.MkdirTemp("", "console")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	stele = filepath.Join(work, "stele")
	build := exec.Command("go", "build", "-o", stele, "./cmd/stele")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("go build ./cmd/stele: %w\n%s", err, out)
	}
	if plane, err = startPlane(filepath.Join(work, "data")); err != nil {
		return 1, err
	}
	defer plane.stop()
	allocator, stop := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(chromium), chromedp.UserDataDir(filepath.Join(work, "profile")),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(*patience), chromedp.WindowSize(1280, 800))
	defer stop()
	first, closeBrowser := chromedp.NewContext(allocator)
	defer closeBrowser()
	if err := chromedp.Do(first); err != nil {
		return 1, fmt.Errorf("chromium does not start: %w", err)
	}
	browser = first
	process, link, err := startConsole()
	if err != nil {
		return 1, err
	}
	defer end(process)
	if err := chromedp.Do(browser, chromedp.Navigate(link)); err != nil {
		return 1, err
	}
	origin = originOf(link)
	return m.Run(), nil
}

// A controlPlane is a running `stele serve`.
type controlPlane struct {
	process    *exec.Cmd
	dir        string
	kubeconfig string
	server     string
	client     *http.Client
}

func startPlane(dir string) (*controlPlane, error) {
	p := &controlPlane{dir: dir, kubeconfig: filepath.Join(dir, "admin.kubeconfig")}
	p.process = exec.Command(stele, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0")
	address, err := firstMatch(p.process, regexp.MustCompile(`API +(https://\S+)`))
	if err != nil {
		return nil, fmt.Errorf("stele serve: %w", err)
	}
	p.server = address
	text, err := os.ReadFile(p.kubeconfig)
	if err != nil {
		return nil, err
	}
	field := func(name string) []byte {
		m := regexp.MustCompile(name + `: (\S+)`).FindSubmatch(text)
		if m == nil {
			return nil
		}
		value, _ := base64.StdEncoding.DecodeString(string(m[1])) // a wrong value fails below
		return value
	}
	pair, err := tls.X509KeyPair(field("client-certificate-data"), field("client-key-data"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(field("certificate-authority-data"))
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}}}
	return p, nil
}

// restart ends the server, and starts it on the same address after a function has returned.
func (p *controlPlane) restart(between func()) error {
	p.stop()
	between()
	p.process = exec.Command(stele, "serve", "--data-dir", p.dir, "--listen", strings.TrimPrefix(p.server, "https://"))
	_, err := firstMatch(p.process, regexp.MustCompile(`API +(https://\S+)`))
	return err
}

func (p *controlPlane) stop() { end(p.process) }

// end ends a process in order.
func end(process *exec.Cmd) {
	_ = process.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = process.Wait()
}

// firstMatch starts a process, and returns what an expression finds in its output.
func firstMatch(process *exec.Cmd, expression *regexp.Regexp) (string, error) {
	found := make(chan string, 1)
	out := &matching{expression: expression, found: found}
	process.Stdout, process.Stderr = out, out
	process.WaitDelay = time.Second
	if err := process.Start(); err != nil {
		return "", err
	}
	select {
	case text := <-found:
		return text, nil
	case <-time.After(*patience):
		end(process)
		return "", fmt.Errorf("nothing matches %s in:\n%s", expression, out.text.Bytes())
	}
}

// matching passes on the first match in what is written to it.
type matching struct {
	mu         sync.Mutex
	text       bytes.Buffer
	expression *regexp.Regexp
	found      chan string
}

func (m *matching) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text.Write(b)
	if match := m.expression.FindSubmatch(m.text.Bytes()); match != nil && m.found != nil && bytes.HasSuffix(m.text.Bytes(), []byte("\n")) {
		m.found <- string(match[1])
		m.found = nil
	}
	return len(b), nil
}

// do sends a request as a user ("" for the administrator), and returns the code and the body of the answer.
func (p *controlPlane) do(t testing.TB, user, method, path, accept, body string) (int, []byte) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, p.server+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		q.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if accept != "" {
		q.Header.Set("Accept", accept)
	}
	if user != "" {
		q.Header.Set("Impersonate-User", user)
		q.Header.Set("Impersonate-Group", "system:masters")
	}
	a, err := p.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, text
}

// must sends a request that succeeds, and returns its answer and its revision.
func (p *controlPlane) must(t testing.TB, user, method, path, body string) map[string]any {
	t.Helper()
	code, text := p.do(t, user, method, path, "", body)
	if code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// revision returns the revision of an object or list.
func revision(answer map[string]any) string {
	return answer["metadata"].(map[string]any)["resourceVersion"].(string)
}

// A page is a tab that shows a console.
type page struct {
	t        testing.TB
	ctx      context.Context
	origin   string
	mu       sync.Mutex
	problems []string // violations of the Content-Security-Policy, and exceptions
}

// startConsole starts `stele console` with arguments, and returns its link.
func startConsole(args ...string) (process *exec.Cmd, link string, err error) {
	process = exec.Command(stele, append([]string{"console", "--no-open", "--port", "0", "--kubeconfig", plane.kubeconfig}, args...)...)
	link, err = firstMatch(process, regexp.MustCompile(`Console +(http://\S+)`))
	return process, link, err
}

// originOf returns a link without its path.
func originOf(link string) string { return link[:strings.Index(link, "/?")] }

// open opens the page in a new tab: of the administrator, or with arguments that of a `stele console` that has them. When the test ends, the
// page must have had no problem.
func open(t testing.TB, args ...string) *page {
	t.Helper()
	link, origin := origin+"/", origin
	if len(args) > 0 {
		process, own, err := startConsole(args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(process) })
		link, origin = own, originOf(own)
	}
	tab, closeTab := chromedp.NewContext(browser)
	ctx, cancel := context.WithTimeout(tab, 4**patience)
	p := &page{t: t, ctx: ctx, origin: origin}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, problem := range p.problems {
			t.Errorf("the page: %s", problem)
		}
		cancel()
		closeTab()
	})
	if err := chromedp.Listen(ctx, func(event any) {
		problem := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			problem = e.ExceptionDetails.Text
			if x := e.ExceptionDetails.Exception; x != nil {
				problem += " " + x.Description
			}
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.ConsoleAPICalledTypeError {
				problem = fmt.Sprintf("console.error: %s", e.Args[0].Value)
			}
		case *log.EventEntryAdded:
			if e.Entry.Source != log.EntrySourceNetwork { // a 403 is no fault of the page
				problem = fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text)
			}
		}
		if problem != "" {
			p.mu.Lock()
			p.problems = append(p.problems, problem)
			p.mu.Unlock()
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.Navigate(link))
	p.waitFor(`document.querySelector('header.top')`)
	return p
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// at opens an address of the page, such as "view=policy".
func (p *page) at(address string) {
	p.t.Helper()
	p.run(fmt.Sprintf("location.hash = %q", address))
}

// run runs a script in the page, and waits for its promise.
func (p *page) run(script string) {
	p.t.Helper()
	eval[chromedp.Void](p, script)
}

// eval returns the value of an expression in the page.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	value, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// waitFor waits until an expression in the page is true.
func (p *page) waitFor(expression string) {
	p.t.Helper()
	deadline := time.Now().Add(*patience)
	for {
		if eval[bool](p, "!!("+expression+")") {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("never: %s\nThe page shows:\n%s\nProblems: %q", expression, p.text(), p.problems)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// text returns the text that the page shows.
func (p *page) text() string {
	p.t.Helper()
	return eval[string](p, "document.body.innerText")
}

// waitForText waits until the page shows a text.
func (p *page) waitForText(text string) {
	p.t.Helper()
	quoted, _ := json.Marshal(text) // a string is always JSON
	p.waitFor("document.body.innerText.includes(" + string(quoted) + ")")
}
