package authz_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stele.dev/stele/core/auth/authz"
	"stele.dev/stele/core/reviewers/plugins"
	"stele.dev/stele/plugins/host"
	"stele.dev/stele/plugins/sdk"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/pluginconfig"
	"stele.dev/stele/schemas"
)

// curfew is what the plugin of these tests is configured with.
type curfew struct {
	Deny string `json:"deny"`
}

// servePlugin is a plugin that denies one user, and lets those whose selectors say so.
func servePlugin() {
	sdk.Serve(sdk.Plugin[curfew]{Name: "curfew", Version: "1", Schema: "#Config: deny!: string & !=\"root\"", New: func(_ context.Context, c curfew, _ map[string][]byte) (sdk.Authorizer, error) {
		if c.Deny == "" {
			return nil, errors.New("deny has to name somebody")
		}
		return sdk.Func(func(_ context.Context, r *sdk.Request) (sdk.Decision, error) {
			switch {
			case r.User.Name == c.Deny:
				return sdk.Deny("not " + c.Deny), nil
			case len(r.LabelSelector) == 1 && r.LabelSelector[0].Key == "team":
				return sdk.Allow("it is their team's"), nil
			}
			return sdk.NoOpinion(), nil
		}), nil
	}})
}

// newHost is a host whose folder has the plugin of these tests; sum is its checksum.
func newHost(t *testing.T, with ...func(*host.Options)) (*host.Host, string) {
	t.Helper()
	dir, sum := thisBinary()
	o := host.Options{Dir: dir}
	for _, set := range with {
		set(&o)
	}
	h, err := host.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, sum
}

// thisBinary is a folder in which it is the plugin, and its checksum.
var thisBinary = sync.OnceValues(func() (dir, sum string) {
	err := func() error {
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			return err
		}
		defer self.Close()
		if dir, err = os.MkdirTemp("", ""); err != nil {
			return err
		}
		program, err := os.OpenFile(filepath.Join(dir, "curfew"), os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		digest := sha256.New()
		_, err = io.Copy(io.MultiWriter(program, digest), self)
		sum = hex.EncodeToString(digest.Sum(nil))
		return errors.Join(err, program.Close())
	}()
	if err != nil {
		panic(err)
	}
	return dir, sum
})

// plugged is a chain of one plugin.
func plugged(t *testing.T, sum, deny string) *compile.Result {
	t.Helper()
	return compileBundle(t, `authorizers: ["deny", "rbac", "plugin:curfew"]
	plugins: curfew: {
		sha256: "`+runtime.GOOS+"/"+runtime.GOARCH+`": "`+sum+`"
		timeout: "10s"
		config: deny: "`+deny+`"
	}`)
}

func TestAPluginDecides(t *testing.T) {
	h, sum := newHost(t)
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	f := plugged(t, sum, "mallory")
	if diags := a.Check(t.Context(), f); len(diags) > 0 {
		t.Fatal(diags)
	}
	p := load(t, a, f.Form)
	a.Follow(newLaw(p))
	if err := a.Health(); err != nil {
		t.Errorf("it is not healthy: %v", err)
	}
	d := p.Authorize(t.Context(), asksFor("mallory", "a"))
	if got := verdict(d); got != "denied not mallory" || d.Rule != "plugin:curfew" || !strings.HasPrefix(d.Source, "bundle.cue:8") || d.By() == nil || d.By().Program != sum {
		t.Errorf("%q by %s at %s, program %+v", got, d.Rule, d.Source, d.By())
	}
	if got := verdict(p.Authorize(t.Context(), asksFor("alice", "a"))); got != "nothing" {
		t.Errorf("of others it says %q", got)
	}
	list := asksFor("alice", "")
	list.Verb, list.Selectors = "list", policy.ParseSelectors("", "team=a")
	if got := verdict(p.Authorize(t.Context(), list)); got != "allowed it is their team's" {
		t.Errorf("of a selection it says %q", got)
	}
}

// A policy is checked before it comes in force: what is wrong is said with its place in the bundle.
func TestAPluginThatCannotBeUsedIsSaid(t *testing.T) {
	h, sum := newHost(t)
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	none := newAuthorizers(t, authz.Options{})
	for name, tc := range map[string]struct {
		a        *authz.Authorizers
		compiled *compile.Result
		want     string
	}{
		"another program":                  {a, plugged(t, strings.Repeat("0", 64), "mallory"), "checksum"},
		"a configuration it does not take": {a, plugged(t, sum, ""), "deny has to name somebody"},
		"no plugins here":                  {none, plugged(t, sum, "mallory"), "this replica runs no plugins"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.a.Check(t.Context(), tc.compiled).Error()
			if !strings.HasPrefix(got, "bundle.cue:8: bundle.plugins.curfew: ") || !strings.Contains(got, tc.want) {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
		})
	}
}

// What a program's schema does not allow is refused where it stands, also where the program would take it.
func TestAConfigurationThatBreaksItsPluginsSchemaIsRefused(t *testing.T) {
	h, sum := newHost(t)
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h, CheckConfigs: func(_ context.Context, source *bundles.Source, configs map[string]string) (schemas.Diagnostics, error) {
		return pluginconfig.Check(source, configs), nil
	}})})
	if diags := a.Check(t.Context(), plugged(t, sum, "mallory")); len(diags) > 0 {
		t.Errorf("a configuration that fits is refused: %v", diags)
	}
	got := a.Check(t.Context(), plugged(t, sum, "root"))
	if want := "bundle.cue:11: bundle.plugins.curfew.config.deny: "; len(got) != 1 || !strings.HasPrefix(got[0].String(), want) {
		t.Errorf("it says %v, want %s…", got, want)
	}
	got = a.Check(t.Context(), plugged(t, sum, "mallory\"\n\t\tconfig: when: \"night"))
	if len(got) != 2 || got[0].Path != "bundle.plugins.curfew.config.when" || !strings.Contains(got[1].Message, "it refuses its configuration") {
		t.Errorf("of what the program refuses as well it says %v", got)
	}
}

// Nothing is let through because it could not be checked.
func TestAConfigurationThatCannotBeCheckedIsRefused(t *testing.T) {
	h, sum := newHost(t)
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h, CheckConfigs: func(context.Context, *bundles.Source, map[string]string) (schemas.Diagnostics, error) {
		return nil, errors.New("no memory")
	}})})
	if got := a.Check(t.Context(), plugged(t, sum, "mallory")); len(got) != 1 || !strings.Contains(got[0].Message, "no memory") {
		t.Errorf("it says %v", got)
	}
}

// A replica that starts under a policy whose plugin cannot run serves, refuses by the failure policy, and is
// not ready.
func TestAPolicyInForceWhosePluginCannotRun(t *testing.T) {
	h, _ := newHost(t)
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	p := load(t, a, plugged(t, strings.Repeat("0", 64), "mallory").Form)
	a.Follow(newLaw(p))
	if d := p.Authorize(t.Context(), asksFor("alice", "a")); !d.Denied || len(d.Said) != 1 || d.Said[0].Detail == "" {
		t.Errorf("it is %q: %+v", verdict(d), d.Said)
	}
	if err := a.Health(); err == nil || !strings.Contains(err.Error(), "curfew") {
		t.Errorf("its health is %v", err)
	}
}

// Plugins run for the policy in force: not for one that is loaded only to look at the past, and not for one
// that was replaced, whose late requests are refused.
func TestPluginsRunForThePolicyInForce(t *testing.T) {
	h, sum := newHost(t, func(o *host.Options) { o.Linger = time.Millisecond })
	a := newAuthorizers(t, authz.Options{Plugins: plugins.New(plugins.Options{Host: h})})
	past, first := load(t, a, plugged(t, sum, "eve").Form), load(t, a, plugged(t, sum, "mallory").Form)
	law := newLaw(first)
	a.Follow(law)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })

	if got := verdict(past.Authorize(t.Context(), asksFor("alice", "a"))); got != "denied the authorizer plugin:curfew cannot be asked" {
		t.Errorf("a policy that is not in force says %q", got)
	}
	if got := verdict(first.Authorize(t.Context(), asksFor("mallory", "a"))); got != "denied not mallory" {
		t.Errorf("that in force says %q", got)
	}
	before := processes(t)
	if len(before) != 1 {
		t.Fatalf("processes %v run for it", before)
	}
	next := load(t, a, plugged(t, sum, "alice").Form)
	law.activate(next)
	if got := verdict(next.Authorize(t.Context(), asksFor("alice", "a"))); got != "denied not alice" {
		t.Errorf("the next one says %q", got)
	}
	eventually(t, "the process of the policy before has ended", func() bool {
		now := processes(t)
		return len(now) == 1 && now[0] != before[0]
	})
	law.activate(load(t, a, form(t, `authorizers: ["deny", "rbac"]`)))
	eventually(t, "no process is left for a policy without plugins", func() bool { return len(processes(t)) == 0 })
}

// processes are those of the plugin that this process runs.
func processes(t *testing.T) (list []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if f := strings.Fields(string(text)); f[1] == "(curfew)" && f[3] == strconv.Itoa(os.Getpid()) && f[2] != "Z" {
			list = append(list, f[0])
		}
	}
	return list
}
