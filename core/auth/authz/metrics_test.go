package authz_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"stele.dev/stele/core/auth/authz"
)

// metric is the value of a series, and its labels but for the named ones; "" if there is none.
func metric(t *testing.T, a *authz.Authorizers, name string, labels ...string) (float64, string) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(a)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			left := []string{}
			found := 0
			for _, l := range m.Label {
				if strings.Contains(strings.Join(labels, " "), l.GetValue()) {
					found++
				} else {
					left = append(left, l.GetValue())
				}
			}
			if f.GetName() == name && found == len(labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), strings.Join(left, " ")
			}
		}
	}
	return 0, ""
}

// Replicas that have the same in use say so by the same hash, whatever each is known by to its webhooks.
func TestWhatIsInUseOfFilesIsMeasured(t *testing.T) {
	hook := newWebhook(t, says(yes))
	abac, config := `{"user": "a", "resource": "pods"}`, configuration(hook.entry("w"))
	options := func() authz.Options {
		return authz.Options{PolicyFile: write(t, "abac.jsonl", abac), ConfigFile: write(t, "authz.yaml", config)}
	}
	first, second := newAuthorizers(t, options()), newAuthorizers(t, options())
	const info, reloads = "stele_authorization_file_info", "stele_authorization_file_reloads_total"
	hash := func(a *authz.Authorizers, file string) string {
		t.Helper()
		n, hash := metric(t, a, info, file)
		if n != 1 || !strings.HasPrefix(hash, "sha256:") {
			t.Fatalf("of %s it is said %v %q", file, n, hash)
		}
		return hash
	}
	for _, file := range []string{"authorization-policy-file", "authorization-config"} {
		if a, b := hash(first, file), hash(second, file); a != b {
			t.Errorf("of the same %s it is said %s and %s", file, a, b)
		}
	}
	before := hash(first, "authorization-config")
	known := read(t, hook.kubeconfig)
	replace(t, hook.kubeconfig, strings.Replace(known, "token: secret", "token: another", 1))
	if err := first.Reload(); err != nil {
		t.Fatal(err)
	}
	if hash(first, "authorization-config") != before {
		t.Error("credentials are part of the hash")
	}
	elsewhere := newWebhook(t, says(no))
	replace(t, hook.kubeconfig, read(t, elsewhere.kubeconfig))
	if err := first.Reload(); err != nil {
		t.Fatal(err)
	}
	if hash(first, "authorization-config") == before {
		t.Error("another endpoint has the same hash")
	}

	o := options()
	running, _ := running(t, o)
	was := hash(running, "authorization-policy-file")
	replace(t, o.PolicyFile, "{")
	eventually(t, "that it cannot be used is counted", func() bool {
		n, _ := metric(t, running, reloads, "authorization-policy-file", "failure")
		return n == 1
	})
	if hash(running, "authorization-policy-file") != was {
		t.Error("what is not in use is said to be")
	}
	replace(t, o.PolicyFile, `{"user": "b", "resource": "pods"}`)
	eventually(t, "that it is in use is counted", func() bool {
		n, _ := metric(t, running, reloads, "authorization-policy-file", "success")
		return n == 1 && hash(running, "authorization-policy-file") != was
	})
}
