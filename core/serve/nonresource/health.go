package nonresource

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
)

// Check is a named health check.
type Check struct {
	Name string
	// Group is a name by which the check can be left out together with others, as in kube-apiserver; "" for none.
	Group string
	// Live is true if only a restart can help: the check counts for /livez too. All checks count for /readyz.
	Live bool
	// Warns is true if the server is still useful while the check fails: /readyz shows it, and succeeds. Only the
	// check's own path fails.
	Warns bool
	// Check returns why the check fails, or nil.
	Check func() error
}

// checks returns all checks, in the order in which they are shown.
func (s *Service) checks() []Check {
	own := []Check{
		{Name: "ping", Live: true, Check: func() error { return nil }},
		{Name: "policy", Check: func() error {
			if s.Committer.Tip().Policy == nil {
				return fmt.Errorf("no policy is in force")
			}
			return nil
		}},
		{Name: "log", Group: "etcd", Check: func() error {
			if d := s.Committer.Unconfirmed(); d > commit.MaxUnconfirmed {
				return fmt.Errorf("not heard from for %s", d.Round(1e9))
			}
			return nil
		}},
		{Name: "shutdown", Check: func() error {
			if s.notReady.Load() {
				return fmt.Errorf("the server is about to stop")
			}
			return nil
		}},
	}
	return append(own, s.Options.Checks...)
}

// answerHealth answers as kube-apiserver does: "ok" or the check that failed, and with ?verbose the list of checks.
// The reason of a failure may quote a plugin, so it is shown only under the path of that check, which a policy must
// grant.
func (s *Service) answerHealth(c *call.Call, kind, only string) error {
	excluded := c.HTTP.URL.Query()["exclude"]
	unknown := sets.New(excluded...)
	var text strings.Builder
	var failed, names []string
	found := false
	for _, check := range s.checks() {
		if only != "" && check.Name != only || kind != "/readyz" && !check.Live {
			continue
		}
		found = true
		if slices.Contains(excluded, check.Name) {
			unknown.Delete(check.Name)
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if check.Group != "" && slices.Contains(excluded, check.Group) {
			unknown.Delete(check.Group)
			fmt.Fprintf(&text, "[+]%s excluded with %s: ok\n", check.Name, check.Group)
			continue
		}
		err := check.Check()
		if only == "" {
			observe(c.HTTP.Context(), kind[1:], check.Name, err)
		}
		if err != nil && check.Warns && only == "" {
			fmt.Fprintf(&text, "[!]%s failed: reason withheld; the server is ready\n", check.Name)
		} else if err != nil {
			failed, names = append(failed, fmt.Sprintf("%s: %v", check.Name, err)), append(names, check.Name)
			reason := "reason withheld"
			if only != "" {
				reason = err.Error()
			}
			fmt.Fprintf(&text, "[-]%s failed: %s\n", check.Name, reason)
		} else if check.Name == "policy" && c.Tip.Policy != nil {
			fmt.Fprintf(&text, "[+]policy ok: %s is in force since revision %d\n", c.Tip.Policy.DigestString(), c.Tip.ActivationRevision())
		} else {
			fmt.Fprintf(&text, "[+]%s ok\n", check.Name)
		}
	}
	if !found {
		return status.NotServed("get", c.Resource())
	}
	if len(unknown) > 0 && only == "" {
		fmt.Fprintf(&text, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(unknown))
	}
	h := c.W.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	c.Sent = true
	name := kind[1:]
	isNews := s.failures.note(kind+"/"+only, strings.Join(names, " "), time.Now())
	if len(failed) > 0 {
		level := slog.LevelDebug
		if isNews && !s.notReady.Load() {
			level = slog.LevelWarn
		}
		s.Logger.Log(c.HTTP.Context(), level, name+" check failed", "checks", failed)
		c.W.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(c.W, "%s%s check failed\n", text.String(), name)
		return nil
	}
	if _, verbose := c.HTTP.URL.Query()["verbose"]; verbose {
		fmt.Fprintf(c.W, "%s%s check passed\n", text.String(), name)
		return nil
	}
	fmt.Fprint(c.W, "ok")
	return nil
}

// quoted lists names as kube-apiserver does.
func quoted(names sets.Set[string]) string {
	list := sets.List(names)
	for i, name := range list {
		list[i] = strconv.Quote(name)
	}
	return strings.Join(list, ",")
}

// remindEvery is how often the log repeats that the same checks fail: probes ask several times a second.
const remindEvery = time.Minute

// failures are what probes were last told, by path. It is safe for concurrent use.
type failures struct {
	mu   sync.Mutex
	told map[string]failure
}

type failure struct {
	names string
	at    time.Time
}

// note notes which checks fail now, and reports whether that should be logged: others failed before, or it was logged a while ago.
func (f *failures) note(path, names string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if names == "" {
		delete(f.told, path)
		return false
	}
	if last, told := f.told[path]; told && last.names == names && now.Sub(last.at) < remindEvery {
		return false
	}
	if f.told == nil {
		f.told = map[string]failure{}
	}
	f.told[path] = failure{names, now}
	return true
}
