package authz_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/core/reviewers/plugins"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/policy"
)

// A failure policy is about the webhook: who does not wait for the answer is not let through by it.
func TestWhoDoesNotWaitForAWebhookIsDenied(t *testing.T) {
	release := make(chan struct{})
	h := newWebhook(t, func(http.ResponseWriter, *authorizationv1.SubjectAccessReview) { <-release })
	defer close(release)
	a := newAuthorizers(t, authz.Options{ConfigFile: write(t, "config", configuration(h.entry("w", "failurePolicy: NoOpinion")))})
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		for h.asked() == 0 {
			time.Sleep(time.Millisecond)
		}
		giveUp()
	}()
	if d := chain(t, a, "webhook:w").Authorize(ctx, asksFor("mallory", "a")); !d.Denied {
		t.Errorf("it is %q", verdict(d))
	}
}

// What comes from outside is shown as a line of text, whatever is in it.
func TestReasonsAreLinesOfText(t *testing.T) {
	h := newWebhook(t, says(authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "no\x1b[2J\nallowed: yes\u202e" + strings.Repeat("x", 2000)}))
	a := newAuthorizers(t, authz.Options{ConfigFile: write(t, "config", configuration(h.entry("w")))})
	d := chain(t, a, "webhook:w").Authorize(t.Context(), asksFor("mallory", "a"))
	if !strings.HasPrefix(d.Reason, "no [2J allowed: yes x") || !strings.HasSuffix(d.Reason, "x…") || len(d.Reason) > 1100 {
		t.Errorf("it is %q", d.Reason)
	}
}

// A caller has room for more requirements than a plugin can read in time. What it does not get to see makes the
// question a wider one.
func TestAPluginIsNotAskedAboutSelectorsWithoutEnd(t *testing.T) {
	h, sum := newHost(t)
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	p := load(t, a, plugged(t, sum, "mallory").Form)
	a.Follow(newLaw(p))
	values := make([]string, 2000)
	for i := range values {
		values[i] = fmt.Sprint("v", i)
	}
	list := asksFor("alice", "")
	list.Verb, list.Selectors = "list", policy.ParseSelectors("", "team=a,tier in ("+strings.Join(values, ",")+")")
	if got := verdict(p.Authorize(t.Context(), list)); got != "allowed it is their team's" {
		t.Errorf("with one requirement that is too long it says %q", got)
	}
	list.Selectors = policy.ParseSelectors("", strings.Repeat("!x,", 300_000)+"team=a")
	if got := verdict(p.Authorize(t.Context(), list)); got != "nothing" {
		t.Errorf("with very many of them it says %q", got)
	}
}

// A plugin in shadow mode has no say, also where it cannot be asked.
func TestAShadowOfAPolicyThatWasReplacedHasNoSay(t *testing.T) {
	h, sum := newHost(t)
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	f := plugged(t, sum, "mallory").Form
	f.Plugins[0].Shadow = true
	past := load(t, a, f)
	a.Follow(newLaw(load(t, a, plugged(t, sum, "mallory").Form)))
	if got := verdict(past.Authorize(t.Context(), asksFor("alice", "a"))); got != "nothing" {
		t.Errorf("it says %q", got)
	}
}

// A policy that comes in force again, as it was loaded before, has its plugins again.
func TestAPolicyThatComesInForceAgain(t *testing.T) {
	h, sum := newHost(t, func(o *host.Options) { o.Linger = time.Millisecond })
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	first, next := load(t, a, plugged(t, sum, "mallory").Form), load(t, a, plugged(t, sum, "eve").Form)
	law := newLaw(first)
	a.Follow(law)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })

	asked := func(p *policy.Policy) string { return verdict(p.Authorize(t.Context(), asksFor("mallory", "a"))) }
	if got := asked(first); got != "denied not mallory" {
		t.Fatal(got)
	}
	law.activate(next)
	eventually(t, "its plugin has ended", func() bool { return asked(first) != "denied not mallory" })
	law.activate(first)
	eventually(t, "it answers again", func() bool { return asked(first) == "denied not mallory" })
	if err := a.Health(); err != nil {
		t.Errorf("its health is %v", err)
	}
}
