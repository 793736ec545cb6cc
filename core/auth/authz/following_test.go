package authz_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/policy"
)

// said is a log.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

func (s *said) count(part string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), part)
}

// running follows the operator's files until the test ends.
func running(t *testing.T, o authz.Options) (*authz.Authorizers, *said) {
	t.Helper()
	log := new(said)
	o.Logger, o.ReloadEvery = slog.New(slog.NewTextHandler(log, nil)), time.Millisecond
	a := newAuthorizers(t, o)
	a.Follow(newLaw(nil))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return a, log
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.After(time.Minute); !is(); {
		select {
		case <-late:
			t.Fatalf("not after a minute: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// What a policy file says while it runs counts from then on; what is wrong is said once, and changes nothing.
func TestAPolicyFileIsFollowed(t *testing.T) {
	file := write(t, "abac.jsonl", `{"user": "a", "resource": "pods"}`)
	a, log := running(t, authz.Options{PolicyFile: file})
	p := chain(t, a, "abac")
	may := func(user string) bool {
		return p.Authorize(t.Context(), &policy.Request{User: user, Verb: "get", IsResource: true, Resource: "pods", Namespace: "x"}).Allowed
	}
	replace(t, file, `{"user": "b", "resource": "pods"}`)
	eventually(t, "b may", func() bool { return may("b") })
	if may("a") {
		t.Error("a may still")
	}
	replace(t, file, "\n{")
	eventually(t, "it is said", func() bool { return log.count(file+":2: ") == 1 })
	if !may("b") {
		t.Error("a broken line counts")
	}
	replace(t, file, `{"user": "c", "resource": "pods"}`)
	eventually(t, "c may", func() bool { return may("c") })
	if n := log.count("level=ERROR"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

// Webhooks are asked where their configuration and its kubeconfigs say.
func TestWebhooksAreFollowed(t *testing.T) {
	yesman, naysayer := newWebhook(t, says(yes)), newWebhook(t, says(no))
	config := write(t, "authz.yaml", configuration(yesman.entry("w")))
	a, log := running(t, authz.Options{ConfigFile: config})
	p := chain(t, a, "webhook:w")
	is := func(want string) func() bool {
		return func() bool { return verdict(p.Authorize(t.Context(), asksFor("alice", "a"))) == want }
	}
	eventually(t, "the first one is asked", is("allowed fine"))
	replace(t, config, configuration(naysayer.entry("w")))
	eventually(t, "the second one is asked", is("denied not now"))
	replace(t, naysayer.kubeconfig, read(t, yesman.kubeconfig))
	eventually(t, "the first one is asked, by the kubeconfig of the second", is("allowed fine"))
	replace(t, config, configuration(naysayer.entry("w", "timeout: soon")))
	eventually(t, "it is said", func() bool { return log.count("level=ERROR") == 1 })
	if !is("allowed fine")() {
		t.Error("a broken configuration counts")
	}
}

func TestAWebhookOfFlagsIsFollowed(t *testing.T) {
	yesman, naysayer := newWebhook(t, says(yes)), newWebhook(t, says(no))
	file := write(t, "webhook.kubeconfig", read(t, yesman.kubeconfig))
	a, _ := running(t, authz.Options{Webhook: authz.Webhook{KubeconfigFile: file, Version: "v1", AuthorizedTTL: time.Hour}})
	p := chain(t, a, "webhook")
	if got := verdict(p.Authorize(t.Context(), asksFor("alice", "a"))); got != "allowed fine" {
		t.Fatal(got)
	}
	replace(t, file, read(t, naysayer.kubeconfig))
	eventually(t, "the other one is asked", func() bool {
		return verdict(p.Authorize(t.Context(), asksFor("alice", "a"))) == "denied not now"
	})
}

// Whoever is allowed all the time is never refused while files are replaced.
func TestNobodyIsRefusedWhileFilesAreReplaced(t *testing.T) {
	hook := newWebhook(t, says(neither))
	file, config := write(t, "abac.jsonl", `{"user": "a"}`), write(t, "authz.yaml", configuration(hook.entry("w")))
	a, _ := running(t, authz.Options{PolicyFile: file, ConfigFile: config})
	p := load(t, a, form(t, `authorizers: ["deny", "webhook:w", "abac"]`))
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for ctx.Err() == nil {
				if d := p.Authorize(t.Context(), &policy.Request{User: "a", Verb: "get", Path: "/x"}); !d.Allowed {
					t.Errorf("it is %q: %+v", verdict(d), d.Said)
					return
				}
			}
		})
	}
	next := func(user string) func() bool {
		return func() bool {
			return p.Authorize(t.Context(), &policy.Request{User: user, Verb: "get", Path: "/x"}).Allowed
		}
	}
	for _, user := range strings.Fields("b c d e f g h i j k") {
		replace(t, config, configuration(hook.entry("w"))+"# "+user)
		replace(t, file, `{"user": "`+user+`"}`+"\n"+`{"user": "a"}`)
		eventually(t, "the next file counts", next(user))
	}
	stop()
	asking.Wait()
}
